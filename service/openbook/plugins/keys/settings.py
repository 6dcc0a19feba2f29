"""Where the keys are."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class KeysSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="OPENBOOK_", frozen=True, extra="ignore")

    api_keys_file: Path | None = Field(
        None,
        description="File of the keys that may ask, one NAME sha256:HEX [RATE/min] per line; without it, everyone may. "
        "openbook keys add writes it.",
    )
