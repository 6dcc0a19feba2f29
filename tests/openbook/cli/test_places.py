"""What a command is to write is looked at before its work, which may take hours."""

from pathlib import Path

import pytest

from tests.fixtures.command_line import Run

# each ends at once where its places are well: nothing of what it is asked for is there
READING = ("eval", "reading", "none.jsonl")
OPEN = ("eval", "open", "none.jsonl")
SWAP, INDEX = (("bench", name, "--type", "none") for name in ("swap", "index"))
ENGINE = ("bench", "engine", "--contestants", "none")


@pytest.mark.parametrize(
    ("command", "option", "place", "said"),
    [
        *((READING, option, "file/report", "the folder file cannot be made") for option in ("--json", "--markdown")),
        (READING, "--json", ".", ". is a folder"),
        *((command, "--folder", "file", "the folder file cannot be made") for command in (SWAP, INDEX, ENGINE)),
        (OPEN, "--plot", "curve.gif", "curve.gif does not end in .png or .svg"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_the_work(
    run: Run, command: tuple[str, ...], option: str, place: str, said: str
) -> None:
    Path("file").write_text("")
    ended = run(*command[:2], option, place, *command[2:])
    assert (ended.code, f"Invalid value for '{option}': {said}" in ended.err) == (2, True), ended.err


@pytest.mark.parametrize(
    ("command", "option", "place", "made"),
    [(SWAP, "--folder", "new/one", "new/one"), (READING, "--json", "new/report.json", "new")],
)
def test_the_folder_of_what_is_written_is_made(
    run: Run, command: tuple[str, ...], option: str, place: str, made: str
) -> None:
    ended = run(*command[:2], option, place, *command[2:])
    assert (ended.code in (1, 2), option in ended.err) == (True, False)
    assert Path(made).is_dir()
