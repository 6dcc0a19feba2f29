"""What a command is to write is looked at before its work, which may take hours."""

from pathlib import Path

import pytest

from tests.fixtures.command_line import Run

# each ends at once where its places are well: nothing of what it is asked for is there
COMMANDS = {
    "bench swap": ("--type", "none"),
    "bench http": ("--checkpoint", "none"),
    "bench index": ("--type", "none"),
    "bench engine": ("--contestants", "none"),
    "eval reading": ("none.jsonl",),
    "eval open": ("none.jsonl",),
    "eval leaders": ("--style", "none"),
    "eval precision": ("none.jsonl",),
    "eval qa": ("none.jsonl",),
    "eval fever": ("none.jsonl",),
    "eval generation": ("none.jsonl",),
}
WITH_FOLDER = ("bench swap", "bench index", "bench engine")
WITH_PLOT = ("eval open", "eval qa", "eval generation")


def ran(run: Run, command: str, *options: object) -> tuple[object, str]:
    ended = run(*command.split(), *options, *COMMANDS[command])
    return ended.code, ended.err


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_a_report_that_cannot_be_written_is_refused_and_not_lost(run: Run, command: str, option: str) -> None:
    Path("file").write_text("")
    code, said = ran(run, command, option, "file/report")
    assert (code, f"Invalid value for '{option}': the folder file cannot be made" in said) == (2, True), said
    code, said = ran(run, command, option, ".")
    assert (code, f"Invalid value for '{option}': . is a folder" in said) == (2, True), said


@pytest.mark.parametrize("command", WITH_FOLDER)
def test_the_folder_to_work_in_is_made_or_refused(run: Run, command: str) -> None:
    Path("file").write_text("")
    code, said = ran(run, command, "--folder", "file")
    assert (code, "Invalid value for '--folder': the folder file cannot be made" in said) == (2, True), said
    code, said = ran(run, command, "--folder", "new/one")
    assert code in (1, 2)
    assert "--folder" not in said
    assert Path("new/one").is_dir()


@pytest.mark.parametrize("command", WITH_PLOT)
def test_a_picture_of_no_known_kind_is_refused(run: Run, command: str) -> None:
    code, said = ran(run, command, "--plot", "curve.gif")
    assert (code, "Invalid value for '--plot': curve.gif does not end in .png or .svg" in said) == (2, True), said


def test_the_folder_of_a_report_is_made(run: Run) -> None:
    code, said = ran(run, "eval reading", "--json", "new/report.json")
    assert (code, "none.jsonl: cannot be read" in said) == (1, True), said
    assert Path("new").is_dir()
