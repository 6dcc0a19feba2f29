"""Every setting: name, default, help. The only reader of the environment."""

import difflib
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from platformdirs import user_data_path
from pydantic import BeforeValidator, Field, SecretStr, create_model, field_validator
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from openbook.errors import SettingInvalid
from openbook.extensions import SETTINGS, checkpoint_folder, extensions

# The first that is installed is served where nothing else is named: the larger one reads better.
DEFAULT_CHECKPOINTS = ("openbook-base", "openbook-mini")
# why a service does not start
FOLLOWS_UNDER_RESOURCE = (
    "resource does not go with following CURRENT: all replicas would be without an index at once. Set "
    "OPENBOOK_FOLLOW_S=0, and swap one replica after the other: openbook index swap VERSION --url http://REPLICA:8000"
)
PREFIX = "OPENBOOK_"
# times OPENBOOK_TIMEOUT_S
LONGEST = 4
# files of the working directory that settings are read from
VARIABLES_FILE = ".env"
FILE = "openbook.toml"
# What compose files, the image and the tests read, and what Kubernetes tells a pod of Services whose names begin so.
OTHERS = re.compile(r"IMAGE|DEMO|CHECKPOINTS|TEST_\w+|(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_\w+)")
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://")
_ADDRESS = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
_HOST = re.compile(r"\*|[\w.:\[\]-]+")
# As browsers send it: small letters, no path, and no port that is the usual one.
_ORIGIN = re.compile(r"(https(?!.*:443$)|http(?!.*:80$))://([a-z0-9.-]+|\[[0-9a-f:]+\])(:\d{1,5})?")


def default_checkpoint() -> str:
    return next((name for name in DEFAULT_CHECKPOINTS if checkpoint_folder(name)), DEFAULT_CHECKPOINTS[0])


def default_indexes() -> Path:
    """`indexes` of the working directory where there is one, as in a clone; else a folder of the user's data."""
    here = Path("indexes")
    return here if here.is_dir() else user_data_path("openbook") / "indexes"


class Settings(BaseSettings):
    """The settings of the core. For each, what code passes wins, such as an option of the command line. Then comes
    OPENBOOK_<NAME> in the environment, then OPENBOOK_<NAME> in .env, and last <name> in openbook.toml.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=VARIABLES_FILE, toml_file=FILE, frozen=True, extra="ignore"
    )

    host: str = Field("127.0.0.1", description="Address to listen on. 0.0.0.0 opens the service to the network.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 lets the system choose.")
    allowed_hosts: str = Field(
        "",
        description="Names that clients call the service by, with commas between them; addresses, localhost and the "
        "name in OPENBOOK_HOST need no entry. * allows any name.",
    )
    allowed_origins: str = Field(
        "",
        description="Sites whose pages may ask from a browser (CORS), with commas between them, such as "
        "https://docs.example.org. None of them may administer.",
    )
    public_url: str = Field(
        "",
        description="Address by which readers' browsers reach the service, such as https://books.example.org: links to "
        "passages begin with it; without it, with the address that the request names.",
    )
    trusted_proxies: str = Field(
        "",
        description="Addresses and networks of proxies whose X-Forwarded-For is believed, with commas between them.",
    )
    checkpoint: str = Field(
        default_factory=default_checkpoint,
        description="Folder of a Hugging Face RAG checkpoint, or of one that openbook checkpoint compose made; an "
        "installed one such as openbook-mini; or a hub id such as facebook/rag-token-nq; without it openbook-base, or "
        "openbook-mini where that alone is installed.",
    )
    generator: str = Field(
        "",
        description="Address of a server with a language model, such as http://127.0.0.1:8001/v1, that answers in "
        "place of the checkpoint's generator. Needs log-probs of tokens: llama.cpp, Ollama, vLLM, SGLang.",
    )
    prompt: Path | None = Field(
        None,
        description="JSON file with a prompt that replaces a language model's own, or the usual one of "
        "OPENBOOK_GENERATOR. Other checkpoints have no prompt.",
    )
    indexes: Annotated[str, BeforeValidator(os.fspath)] = Field(
        default_factory=lambda: str(default_indexes()),
        description="Folder that holds the index versions and CURRENT, or the address of a store of them such as "
        "s3://bucket/prefix; without it ./indexes where that is there, else openbook/indexes among your data.",
    )
    index: str | None = Field(
        None, description="Version to serve at start; without it the one that CURRENT names, else the newest."
    )
    admin_token: SecretStr | None = Field(
        None,
        description="Bearer token for swaps, rollbacks, loads and the history. Without one, administration is off.",
    )
    api_key: SecretStr | None = Field(None, description="API key that openbook ask sends to a service that wants one.")
    retriever: Literal["auto", "dense", "bm25", "hybrid", "reranked"] = Field(
        "auto",
        description="Retriever of questions that name none. auto: hybrid where the version holds BM25 and "
        "the checkpoint has a prior, else dense.",
    )
    reranker: str = Field(
        "",
        description="Cross-encoder for the retriever reranked: a sentence-transformers folder with one "
        "label, or a hub id such as cross-encoder/ms-marco-MiniLM-L6-v2; without it, reranked is "
        "off.",
    )
    device: str = Field("auto", description="auto, cpu, cuda or cuda:N. auto takes a GPU where there is one.")
    dtype: Literal["auto", "float32", "bfloat16", "int8"] = Field(
        "float32",
        description="Precision of the two models. auto takes bfloat16 where the hardware multiplies it; int8 "
        "quantizes the generator on CPUs, and is the same as auto on other devices.",
    )
    threads: int = Field(
        0,
        ge=0,
        le=1024,
        description="CPU threads, divided among the batches computed at the same time; 0 takes one per core.",
    )
    workers: int = Field(2, ge=1, le=64, description="Batches of questions computed at the same time.")
    max_batch: int = Field(8, ge=1, le=64, description="Largest batch of waiting questions; 1 never batches.")
    max_queue: int = Field(
        32, ge=0, le=10_000, description="Largest number of questions in the queue, beside those being computed."
    )
    timeout_s: float = Field(
        30.0,
        gt=0,
        le=600,
        description="Seconds that a question may take which names no timeout. It may name up to four times as many, "
        "the most that a comparison takes.",
    )
    max_new_tokens: int = Field(128, ge=1, le=1024, description="Largest max_new_tokens that a question may ask for.")
    max_work: int = Field(
        400_000,
        ge=1,
        description="Largest product of passages, beams and tokens, or of passages and bytes of targets, that a "
        "question may ask for.",
    )
    swap_policy: Literal["availability", "resource"] = Field(
        "availability",
        description="Policy of a swap that names none. availability needs memory for two "
        "versions; resource closes the live one first, an outage until the flip.",
    )
    residents: int = Field(
        2,
        ge=1,
        le=16,
        description="Versions open at once, the live one included. A question may name any of them.",
    )
    follow_s: float = Field(
        0.5,
        ge=0,
        le=3600,
        description="Seconds between two reads of CURRENT, which another replica may have changed; 0 never reads it, "
        "nor does policy resource.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Lowest level to log.")
    log_questions: bool = Field(False, description="Log the question of each request. It may be somebody's secret.")
    feedback: Path | None = Field(
        None,
        description="JSON lines file for readers' feedback, with the question and the answer; without it, "
        "feedback is off.",
    )
    traces_url: str | None = Field(
        None,
        description="OTLP collector for traces, such as http://127.0.0.1:4318; without it, tracing is off.",
    )

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], *sources: PydanticBaseSettingsSource, **named: PydanticBaseSettingsSource
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        stronger = (named["init_settings"], named["env_settings"], named["dotenv_settings"])
        return (*stronger, TomlConfigSettingsSource(settings_cls))

    @field_validator("allowed_hosts")
    @classmethod
    def _names_alone(cls, names: str) -> str:
        """A URL or a pattern would match no host, in silence."""
        for name in map(str.strip, names.split(",")):
            if name and not _HOST.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a host: give the name alone, such as books.example.org")
        return names

    @field_validator("allowed_origins")
    @classmethod
    def _whole_origins(cls, origins: str) -> str:
        """A pattern, or a path, would match no origin, in silence."""
        for origin in map(str.strip, origins.split(",")):
            if origin and not _ORIGIN.fullmatch(origin):
                raise ValueError(
                    f"{origin!r} is no origin as a browser sends it: give scheme, host in small letters and an unusual "
                    "port, and no path, such as https://docs.example.org"
                )
        return origins

    @field_validator("public_url")
    @classmethod
    def _address_alone(cls, url: str) -> str:
        if url and not _ADDRESS.fullmatch(url):
            raise ValueError(f"{url!r} is no address that a path can follow, such as https://books.example.org")
        return url

    @property
    def longest_s(self) -> float:
        """The most seconds that a question may ask for, that a comparison takes, and that a swap waits for both."""
        return LONGEST * self.timeout_s

    @property
    def indexes_url(self) -> str | None:
        """The address of the store of versions; None where they lie in a folder."""
        return str(self.indexes) if _URL.match(str(self.indexes)) else None

    def followed_every_s(self) -> float:
        """`follow_s`; 0 under policy `resource`, where all replicas that follow would let their index go at once.

        Raises SettingInvalid where the settings ask for both: replicas share a store, or `follow_s` is given.
        """
        if self.swap_policy != "resource" or not self.follow_s:
            return self.follow_s
        if self.indexes_url is None and "follow_s" not in self.model_fields_set:
            return 0.0
        raise SettingInvalid(setting="OPENBOOK_SWAP_POLICY", reason=FOLLOWS_UNDER_RESOURCE)


def has_display() -> bool:
    """Whether a browser has a window to open in."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


@cache
def settings_class() -> type[Settings]:
    """Settings, with those of every plug-in."""
    of_plugins = (found.load() for found in extensions(SETTINGS).values())
    return create_model("Settings", __base__=(*of_plugins, Settings))


def places() -> dict[str, str]:
    """Which setting each place names, the strongest place first: "port" for OPENBOOK_PORT, "OPENBOOK_PORT in .env" and
    "port in openbook.toml". Raises SettingInvalid for a file that cannot be read, or is no .env or no TOML.
    """
    try:
        variables = DotEnvSettingsSource(settings_class()).env_vars.items()
        lines = {f"{name.upper()} in {VARIABLES_FILE}": (name, value) for name, value in variables}
    except (OSError, ValueError) as error:
        raise SettingInvalid(setting=VARIABLES_FILE, reason=str(error)) from error
    try:
        table = TomlConfigSettingsSource(settings_class()).toml_data
    except (OSError, ValueError) as error:
        raise SettingInvalid(setting=FILE, reason=str(error)) from error
    variables_set = {name: (name, value) for name, value in os.environ.items()} | lines
    return {
        place: name.upper().removeprefix(PREFIX).lower()
        for place, (name, value) in variables_set.items()
        if name.upper().startswith(PREFIX)
        and not OTHERS.fullmatch(name.upper().removeprefix(PREFIX))
        and not _SERVICE_ADDRESS.match(value or "")
    } | {f"{name} in {FILE}": name for name in table}


def misspelt() -> dict[str, str]:
    """Each place that sets what is no setting, with the nearest that is one."""
    settings = list(settings_class().model_fields)
    return {
        place: difflib.get_close_matches(name.lower(), settings, 1, cutoff=0.0)[0]
        for place, name in places().items()
        if name not in settings
    }
