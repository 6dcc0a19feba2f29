import subprocess
import sys

import pytest

import openbook
from openbook.cli import app
from openbook.errors import NoIndexes, OpenbookError, SettingInvalid
from openbook_client import Refused
from openbook_client.results import Problem
from tests.fixtures.command_line import Run
from tests.places import ROOT

TAKEN = Problem(type="t", title="Overloaded", status=503, detail="All 3 are taken.", code="overloaded", request_id=None)


def test_help_names_every_command(run: Run) -> None:
    ended = run("--help")
    assert ended.code == 0
    for command in ("serve", "ask", "index", "checkpoint"):
        assert f"\n  {command}" in ended.out


@pytest.mark.parametrize(
    ("raised", "code", "line"),
    [
        (NoIndexes(folder="x"), 1, f"error [no_indexes]: {NoIndexes(folder='x')}\n"),
        (SettingInvalid(setting="--port", reason="is taken"), 2, "error [setting_invalid]: --port: is taken\n"),
        # the service's own code and sentence
        (Refused(TAKEN), 1, "error [overloaded]: All 3 are taken.\n"),
        (PermissionError(13, "Permission denied", "indexes"), 1, None),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_an_error_is_one_line_and_a_status(
    raised: BaseException, code: int, line: str | None, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr("openbook.storage.index_store.IndexStore.versions", broken)
    ended = run("index", "list")
    assert ended.code == code
    assert ended.err == ("error [system_error]: [Errno 13] Permission denied: 'indexes'\n" if line is None else line)
    assert ended.out == ""


def test_a_bug_is_not_dressed_up_as_an_error(bare: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("openbook.storage.index_store.IndexStore.versions", broken)
    with pytest.raises(ZeroDivisionError):
        app.main(["index", "list"])


def test_an_error_message_cannot_drive_the_terminal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise type("Odd", (OpenbookError,), {"message": "one\ntwo \x1b[2J [red]three"})

    monkeypatch.setattr("openbook.storage.index_store.IndexStore.versions", broken)
    assert run("index", "list").err == "error [internal_error]: one two \ufffd[2J [red]three\n"


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "openbook", "--version"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"openbook {openbook.__version__}\n"


def test_help_does_not_wait_for_torch() -> None:
    code = (
        "import sys; from openbook.cli.app import build; build(); "
        "sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
