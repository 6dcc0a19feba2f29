"""Which model of the server answers, and how it is asked. The address is the core's setting `generator`."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class GeneratorsSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="OPENBOOK_", frozen=True, extra="ignore")

    generator_model: str = Field(
        "", description="Model of the server at OPENBOOK_GENERATOR; without it, the one that it serves."
    )
    generator_key: SecretStr | None = Field(None, description="API key of the server at OPENBOOK_GENERATOR.")
    generator_concurrency: int = Field(
        8, ge=1, le=1024, description="Largest number of requests under way at the server at OPENBOOK_GENERATOR."
    )
    single_prompt: Path | None = Field(
        None, description='JSON file with the prompt of model "single-prompt", in which the server reads all passages.'
    )
    audit: bool = Field(
        True, description='Whether the sentences of model "single-prompt" are scored again without each passage.'
    )
