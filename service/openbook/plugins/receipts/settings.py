"""Where receipts are kept, and how many."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ReceiptsSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="OPENBOOK_", frozen=True, extra="ignore")

    receipts: Path | None = Field(
        None, description="Folder for receipts of answers, and for the key that signs them; without it, there are none."
    )
    receipts_always: bool = Field(
        False, description="Keep a receipt of each answer of POST /answer that is no stream, asked for or not."
    )
    receipts_mb: int = Field(256, ge=1, description="Largest size of all receipts, in MiB; beyond it, the oldest go.")
