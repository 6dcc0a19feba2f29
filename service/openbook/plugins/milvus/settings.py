"""Which databases may be connected to, and what opens them: only an operator says so, never a manifest."""

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from openbook.errors import SettingInvalid


class MilvusSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="OPENBOOK_", frozen=True, extra="ignore")

    milvus_databases: str = Field(
        "",
        description="Milvus databases that may hold vectors of versions, with commas between them, such as "
        "milvus://db:19530. No other is connected to, whatever a version names.",
    )
    milvus_token: SecretStr | None = Field(
        None,
        description="Credentials of these databases: user:password, or a token.",
    )

    @field_validator("milvus_databases")
    @classmethod
    def _addresses(cls, addresses: str) -> str:
        # only where there are some: it takes numpy
        if addresses:
            from openbook.plugins.milvus.collection import Databases

            try:
                Databases.listed(addresses)
            except SettingInvalid as error:
                raise ValueError(error.data["reason"]) from None
        return addresses
