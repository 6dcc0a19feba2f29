"""A folder of texts: one file, one article."""

from pathlib import Path

import pytest

from openbook.entities import Passage
from openbook.indexing.sources import open_source
from openbook.indexing.sources.folder import LARGEST_FILE
from tests.openbook.indexing.sources.marks import check_marks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "b.txt": "words of b",
        "a_long_name.md": "no heading here",
        "deep/er/c.md": "\ufeff# The *sea* #\r\n\r\nIs deep.\n\n## More\n",
        "deep/a.TXT": " ".join(["w"] * 130),
        "deep.txt": "beside the folder",
        ".hidden/x.txt": "hidden",
        ".x.md": "hidden",
        "picture.png": "no text",
        "empty.txt": " \n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9")
    return tmp_path


def test_every_text_below_a_folder_is_an_article_in_the_order_of_paths(folder: Path) -> None:
    source = open_source(str(folder), licence="CC0", snapshot_date="2020-01-01")
    assert list(source.passages()) == [
        Passage("a_long_name.md#0", "a long name", "no heading here"),
        Passage("b.txt#0", "b", "words of b"),
        Passage("deep/a.TXT#0", "a", " ".join(["w"] * 100)),
        Passage("deep/a.TXT#1", "a", " ".join(["w"] * 30)),
        Passage("deep/er/c.md#0", "The *sea*", "Is deep. ## More"),
        Passage("deep.txt#0", "deep", "beside the folder"),
    ]
    assert source.skipped() == {"empty": 1, "undecodable": 1}
    assert (source.name, source.licence, source.snapshot_date) == (folder.name, "CC0", "2020-01-01")


def test_what_follows_any_mark_is_exactly_the_rest(folder: Path) -> None:
    whole = check_marks(lambda: open_source(str(folder)), "gone.txt")
    assert whole[-1].read == open_source(str(folder)).total_bytes


def test_a_file_too_large_to_be_a_text_is_left_out_unread(tmp_path: Path) -> None:
    with (tmp_path / "huge.txt").open("wb") as file:
        file.truncate(LARGEST_FILE + 1)
    source = open_source(str(tmp_path))
    assert list(source.passages()) == []
    assert source.skipped() == {"too large": 1}
