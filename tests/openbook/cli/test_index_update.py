"""The commands that make a version of another one, and that compare the two."""

import json
from pathlib import Path

import pytest

from openbook.settings import default_indexes
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import Run


def write(path: Path, *rows: dict[str, str]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def book(run: Run, tmp_path: Path, tiny_encoder: Path) -> None:
    """The version `book` of ten passages, and what changes in it."""
    rows = [{"id": f"p{number}", "title": "Page", "text": f"this is what page {number} says"} for number in range(10)]
    write(tmp_path / "book.jsonl", *rows)
    write(tmp_path / "changes.jsonl", rows[3] | {"text": "page 3 says more"}, {"id": "q", "title": "t", "text": "new"})
    (tmp_path / "gone.txt").write_text("p1\r\np2\n\n")
    built = run("index", "build", "book.jsonl", "--name", "book", "--encoder", tiny_encoder, "--no-bm25")
    assert built.code == 0, built.err


def test_an_update_says_what_it_does_and_the_difference_is_that(run: Run, book: None, tiny_encoder: Path) -> None:
    arguments = ("index", "update", "book", "--encoder", tiny_encoder, "--name", "next")
    made = run(*arguments, "--changes", "changes.jsonl", "--delete", "gone.txt", "--bm25", "--date", "2020-01-02")
    assert made.code == 0, made.err
    assert "9 passages: 1 added, 1 changed (1 of them in heading or text), 2 removed; 2 to embed\n" in made.err
    assert "built next: 9 passages" in made.err
    info = IndexStore(default_indexes()).info("next")
    assert info.bm25 is not None
    assert (info.snapshot_date, info.source) == ("2020-01-02", "book.jsonl")
    assert "base: book" in run("index", "info", "next").out
    assert run("index", "diff", "book", "next").out == (
        "next has 1 passages that book lacks, 1 with another heading or text, 0 with other fields, and lacks 2\n"
    )
    assert run("index", "diff", "book", "next", "--ids").out == "added\tq\ntext\tp3\nremoved\tp1\nremoved\tp2\n"
    listed = run("index", "diff", "next", "book", "--json").json
    assert listed == {
        **{"before": "next", "after": "book"},
        **{"added": ["p1", "p2"], "text": ["p3"], "fields": [], "removed": ["q"]},
    }
    again = run(*arguments, "--changes", "changes.jsonl")
    assert again.err.startswith("error [index_exists]")


def test_an_update_from_a_folder_says_how_many_passages_stay_that_it_lacks(run: Run, tiny_encoder: Path) -> None:
    folder = Path("notes")
    folder.mkdir()
    for name in ("peru", "kenya", "chile"):
        (folder / f"{name}.txt").write_text(f"this is what {name} says")
    assert run("index", "build", folder, "--name", "a", "--encoder", tiny_encoder).code == 0
    (folder / "peru.txt").unlink()
    stays = (
        "The update keeps 1 of a's passages that notes lacks (of a deleted file, for example); --mirror removes such "
        "passages.\n"
    )
    for name, mirror in (("b", ()), ("c", ("--mirror",))):
        (folder / "chile.txt").write_text(f"it says {name}")
        made = run("index", "update", "a", "--changes", folder, "--name", name, "--encoder", tiny_encoder, *mirror)
        assert (made.code, stays in made.err, "keeps" in made.err) == (0, not mirror, not mirror), made.err


def test_what_an_update_cannot_do_is_said_before_it_reads(run: Run, book: None, tiny_encoder: Path) -> None:
    update = ("index", "update", "book", "--name", "next", "--encoder", tiny_encoder)
    for arguments, said in (
        ((), "error [setting_invalid]: --changes: is needed"),
        (("--changes", "changes.jsonl", "--mirror", "--delete", "gone.txt"), "error [setting_invalid]: --mirror"),
        (("--delete", "missing.txt"), "error [source_invalid]: missing.txt: cannot be read"),
        (("--changes", "missing.jsonl"), "error [source_invalid]: missing.jsonl: there is no such file"),
    ):
        assert run(*update, *arguments).err.startswith(said)
    Path("gone.txt").write_text("\n")
    assert run(*update, "--delete", "gone.txt").err.startswith("error [source_invalid]: gone.txt: there is no id")
    Path("gone.txt").write_text("nobody\n")
    assert "error [source_invalid]: --delete: the index 'book' has no passage 'nobody'" in (
        run(*update, "--delete", "gone.txt").err
    )
    assert IndexStore(default_indexes()).versions() == ("book",)
