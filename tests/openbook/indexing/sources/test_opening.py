"""Which source a name or a file is."""

import sys
from pathlib import Path

import pytest

from openbook.errors import SourceInvalid
from openbook.indexing.sources import PassageBatch, open_source
from tests.openbook.indexing.sources.marks import check_marks


@pytest.fixture(scope="module")
def demo() -> dict[str, list[PassageBatch]]:
    return {name: list(open_source(name).batches()) for name in ("wiki-2016", "wiki-2018")}


@pytest.mark.parametrize(("name", "date"), [("wiki-2016", "2016-11-30"), ("wiki-2018", "2018-12-20")])
def test_the_demo_is_named_and_knows_its_date_and_licence(name: str, date: str) -> None:
    source = open_source(name)
    assert (source.snapshot_date, source.licence) == (date, "Apache-2.0")
    assert name.removeprefix("wiki-") in source.name


def test_the_demo_continues_from_a_mark(demo: dict[str, list[PassageBatch]]) -> None:
    check_marks(lambda: open_source("wiki-2018"), "x", numbers=(100, -1), whole=demo["wiki-2018"])


def test_a_file_is_described_by_its_name_and_by_what_the_caller_says(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").touch()
    source = open_source(str(tmp_path / "mine.jsonl"), snapshot_date="2020-01-01", licence="CC0")
    assert (source.name, source.snapshot_date, source.licence) == ("mine.jsonl", "2020-01-01", "CC0")


@pytest.mark.parametrize("name", ["wiki-2020", "dump.xml.gz", "passages.csv", "x.gz", "", " "])
def test_a_source_of_no_known_kind_is_refused(name: str) -> None:
    with pytest.raises(SourceInvalid, match="is none of wiki-2016, wiki-2018, a file"):
        open_source(name)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceInvalid, match="there is no such file"):
        open_source(str(tmp_path / "absent.tsv"))


def test_a_dump_without_the_parser_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openbook.plugins.dump.source", None)
    (tmp_path / "wiki.xml").touch()
    with pytest.raises(SourceInvalid, match=r"pip install 'openbook\[dump\]'"):
        open_source(str(tmp_path / "wiki.xml"))
