"""Where a machine keeps its copies of a store's versions."""

from pathlib import Path

from platformdirs import user_cache_path
from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


def default_cache() -> Path:
    """A folder of the user's cache."""
    return user_cache_path("openbook") / "indexes"


class ObjectsSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="OPENBOOK_", frozen=True, extra="ignore")

    cache: Path = Field(
        default_factory=default_cache,
        description="Folder for local copies of a store's versions; without it openbook/indexes in your cache.",
    )
    keep_local: int = Field(
        default=2,
        ge=1,
        le=1000,
        description="Versions of a store to keep on this machine's disk. Never deletes the live version, the "
        "rollback target, a version in use, or one that is not in the store.",
    )
