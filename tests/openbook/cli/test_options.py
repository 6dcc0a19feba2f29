from pathlib import Path

import pytest

from openbook.cli.options import describe, environment_name, flag, read_settings, takes_settings
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from tests.fixtures.command_line import Run


def test_serve_has_an_option_for_every_setting_but_the_secret(run: Run) -> None:
    text = " ".join(run("serve", "--help").out.split()).replace("- ", "-")
    for name in Settings.model_fields:
        if name == "admin_token":
            assert flag(name) not in text
        else:
            assert f"{flag(name)} " in text
            assert environment_name(name) in text


def test_an_options_help_is_the_settings_with_its_variable_and_default() -> None:
    port = Settings.model_fields["port"]
    assert describe("port") == f"{port.description} [env: OPENBOOK_PORT, default: {port.default}]"
    assert describe("index").endswith("[env: OPENBOOK_INDEX]")


def test_an_option_wins_over_the_environment_which_wins_over_the_default(
    bare: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Settings] = []

    @takes_settings("port", "indexes", "workers")
    def command(settings: Settings) -> None:
        seen.append(settings)

    monkeypatch.setenv("OPENBOOK_PORT", "8001")
    monkeypatch.setenv("OPENBOOK_INDEXES", "books")
    command(port=None, indexes=Path("shelf"), workers=None)
    assert (seen[0].port, seen[0].indexes, seen[0].workers) == (8001, Path("shelf"), 2)


def test_a_wrong_option_is_named_as_it_was_given(bare: None) -> None:
    with pytest.raises(SettingInvalid, match=r"^--max-docs: must be greater than or equal to 1, not 0$"):
        read_settings(max_docs=0)


def test_a_wrong_variable_is_named_as_it_was_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBOOK_PORT", "eighty")
    ended = run("index", "list")
    assert ended.code == 2
    assert ended.err.startswith("error [setting_invalid]: OPENBOOK_PORT: must be a valid integer")
