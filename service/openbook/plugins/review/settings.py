"""The guard of a service: its file, and how long asking it may take."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class GuardSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="OPENBOOK_", frozen=True, extra="ignore")

    guard: Path | None = Field(
        None, description="File of guarded questions, which a version must answer before it becomes live."
    )
    guard_s: float = Field(600.0, gt=0, description="Seconds that a check of guarded questions may take.")
