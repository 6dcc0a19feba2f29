"""openbook FOLDER: built, served and followed by one command."""

from pathlib import Path

import pytest

from openbook.cli.folder import name_of
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import Run
from tests.openbook.api.conftest import get
from tests.openbook.cli.test_serve import served
from tests.waiting import until


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "My notes"
    folder.mkdir()
    (folder / "peru.md").write_text("# Peru\n\nThe capital city of Peru is Lima.")
    (folder / "kenya.txt").write_text("Kenya is a republic in the east, and the land is green.")
    return folder


def test_a_folder_has_an_index_of_its_own_that_keeps_up(run: Run, notes: Path, tiny_encoder: Path) -> None:
    there = sorted(notes.iterdir())
    first = run(notes, "--once", "--encoder", tiny_encoder)
    assert first.code == 0, first.err
    [place] = Path("data/openbook/folders").iterdir()
    assert f"openbook ask --local --indexes {place.resolve()}" in first.err
    store = IndexStore(place)
    assert (store.versions(), store.info("My-notes").n_passages) == (("My-notes",), 2)
    (notes / "nepal.md").write_text("Nepal has the largest mountain.")
    assert run("open", notes, "--once", "--encoder", tiny_encoder).code == 0
    assert store.info(store.default_version()).n_passages == 3
    assert sorted(notes.iterdir()) == [there[0], notes / "nepal.md", *there[1:]]


def test_an_index_of_something_else_is_never_made_that_of_the_folder(
    run: Run, notes: Path, indexes_folder: Path
) -> None:
    ended = run(notes, "--once", "--indexes", indexes_folder)
    assert (ended.code, "holds tiny-" in ended.err) == (2, True)


def test_a_path_is_a_folder_and_a_word_a_command(run: Run, notes: Path) -> None:
    assert "nots: is no folder: it does not exist" in run("./nots").err
    neither = "is neither a command nor a folder or file here."
    assert f"'nots' {neither} Give the path of a folder.\n" in run("nots").err
    assert f"'srve' {neither} Did you mean 'serve'? Give the path of a folder.\n" in run("srve").err
    assert neither in run("x" * 300).err
    Path("notes.md").write_text("Lima.")
    assert "notes.md: is a file: name the folder that it is in" in run("notes.md").err
    (notes.parent / "bare").mkdir()
    assert "bare: there is no passage to index" in run("bare", "--once").err
    (notes.parent / "index").mkdir()
    assert "COMMAND" in run("index").err
    assert name_of(Path("/ü/Überblick 2024!")) == "berblick-2024"


def test_it_is_served_and_followed(tmp_path: Path, notes: Path, tiny_encoder: Path, checkpoint_folder: Path) -> None:
    arguments = (notes, "--encoder", tiny_encoder, "--device", "cpu", "--checkpoint", checkpoint_folder)
    with served(*arguments, XDG_DATA_HOME=str(tmp_path / "data")) as one:

        def live() -> str:
            return str(get(f"{one.url}/index").json()["live"]["version"])

        (notes / "nepal.md").write_text("Nepal has the largest mountain.")
        until(lambda: live() != "My-notes")
        assert live().startswith("My-notes-")
    assert "reads My-notes (2 passages of " in one.out
    assert f"listens on {one.url}" in one.out
