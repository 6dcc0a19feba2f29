"""What other packages add: commands and sources, and what is said without them."""

from importlib.metadata import EntryPoint

import pytest

from openbook import extensions
from openbook.indexing.sources import named_sources
from openbook.settings import settings_class
from tests.fixtures.command_line import Run


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where openbook alone is installed."""
    monkeypatch.setattr(extensions, "entry_points", lambda group: [])


@pytest.mark.parametrize(
    "command", [("train", "out"), ("calibrate", "x"), ("eval", "leaders", "--json", "x"), ("bench", "--help")]
)
def test_without_the_lab_its_commands_say_what_to_install(alone: None, run: Run, command: tuple[str, ...]) -> None:
    ended = run(*command)
    assert ended.code == 2
    assert ended.err == (
        f"error [setting_invalid]: openbook {command[0]}: comes with another package: pip install 'openbook[lab]'\n"
    )


def test_without_the_lab_help_does_not_list_its_commands(alone: None, run: Run) -> None:
    listed = [line.split()[0] for line in run("--help").out.partition("Commands:")[2].splitlines() if line.strip()]
    assert listed == ["open", "serve", "ask", "demo", "index", "checkpoint"]
    assert [line.split()[0] for line in run("checkpoint", "--help").out.partition("Commands:")[2].splitlines()[1:]] == [
        "show",
        "export",
    ]


def test_a_package_that_is_broken_takes_its_own_command_with_it_alone(
    monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    broken = EntryPoint("index.mend", "no_such_package:mend", extensions.COMMANDS)
    monkeypatch.setattr(extensions, "entry_points", lambda group: [broken] if group == broken.group else [])
    assert run("index", "list").code == 0
    ended = run("index", "mend", "--now")
    assert ended.code == 2
    assert "openbook index mend: cannot be loaded from no_such_package:mend: ModuleNotFoundError" in ended.err


def test_the_lab_brings_commands_and_the_checkpoint_the_sources_of_the_demo(run: Run) -> None:
    assert "average" in run("checkpoint", "--help").out
    assert named_sources() == ("wiki-2016", "wiki-2018")


def test_a_checkpoint_whose_package_is_not_installed_says_what_to_install(alone: None, run: Run) -> None:
    ended = run("checkpoint", "export", "whole")
    assert ended.code == 1
    assert "pip install 'openbook[base]'" in ended.err


def test_the_default_checkpoint_is_the_larger_one_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_class()().checkpoint == "openbook-base"
    entry = EntryPoint("openbook-mini", "openbook_mini", extensions.CHECKPOINTS)
    monkeypatch.setattr(extensions, "entry_points", lambda group: [entry] if group == entry.group else [])
    assert settings_class()().checkpoint == "openbook-mini"
