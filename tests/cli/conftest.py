"""Commands run in this process as a shell would run them, and a real service for them to talk to."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from service.api.app import create_app
from service.cli.app import main
from service.settings import Settings
from tests.api.conftest import serving

TOKEN = "open sesame"
QUESTION = "who is the president of peru ?"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended, and what it wrote."""

    code: object
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No setting in the environment, and a current folder that holds nothing."""
    for name in Settings.model_fields:
        monkeypatch.delenv(f"OPENBOOK_{name.upper()}", raising=False)
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def run(bare: None, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command line with these arguments; every command ends the process, and so raises SystemExit."""

    def run(*arguments: object) -> Ended:
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        written = capfd.readouterr()
        return Ended(ended.value.code or 0, written.out, written.err)

    return run


@pytest.fixture
def service_settings(indexes_folder: Path, tiny_checkpoint: Path) -> Settings:
    return Settings(indexes=indexes_folder, checkpoint=str(tiny_checkpoint), admin_token=SecretStr(TOKEN), port=0)


@pytest.fixture
def service(bare: None, service_settings: Settings) -> Iterator[str]:
    """The address of a service over the tiny checkpoint and the tiny indexes."""
    with serving(create_app(service_settings), service_settings) as address:
        yield address
