"""A dump with every kind of page and of damage, from its file to its passages."""

import bz2
import itertools
import multiprocessing
from contextlib import closing
from pathlib import Path

import pytest

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.sources import open_source
from openbook.indexing.splitting import Section
from openbook.plugins.dump.cutting import PageBytes
from openbook.plugins.dump.page import DumpArticle
from openbook.plugins.dump.workers import TASK_PAGES, PageReader
from tests.openbook.indexing.sources.marks import check_marks
from tests.openbook.plugins.dump.dumps import dump, multistream, page, words

PAGES = [
    page(10, "Alpha", words("a", 230)),
    page(11, "Alfa", "#REDIRECT [[Alpha]]", redirect="Alpha"),
    page(12, "Beta", "'''Beta''' is [[Alpha|second]].{{stub}}"),
    page(13, "Beta (disambiguation)", "* [[Beta]]"),
    page(14, "Talk:Beta", "words", ns=1),
    page(15, "Gone", "{{deleted}}"),
    page(16, "Torn", "words").replace("</revision>", ""),
    page(17, "Never closed", "words").replace("</page>", ""),
    page(18, "List of letters", "* Alpha"),
    page(19, "Gamma", words("g", 120)),
    page(20, "Delta", "The last one."),
]
URL = "https://en.wikipedia.org/wiki/{}?oldid={}"
PASSAGES = [
    Passage("10#0", "Alpha", " ".join(f"a{n}" for n in range(100)), URL.format("Alpha", 1010)),
    Passage("10#1", "Alpha", " ".join(f"a{n}" for n in range(100, 200)), URL.format("Alpha", 1010)),
    Passage("10#2", "Alpha", " ".join(f"a{n}" for n in range(200, 230)), URL.format("Alpha", 1010)),
    Passage("12#0", "Beta", "Beta is second.", URL.format("Beta", 1012)),
    Passage("19#0", "Gamma", words("g", 120), URL.format("Gamma", 1019)),
    Passage("20#0", "Delta", "The last one.", URL.format("Delta", 1020)),
]
SKIPPED = {
    "redirect": 1, "disambiguation": 1, "other namespace": 1, "empty": 1, "broken": 2, "list": 1,
}  # fmt: skip
NAME = "enwiki-20181220-pages-articles.xml"


def written(folder: Path, name: str, content: bytes) -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (NAME, dump(PAGES)),
        (f"{NAME}.bz2", bz2.compress(dump(PAGES))),
        (f"{NAME}.bz2", multistream(PAGES)),
        (f"{NAME}.bz2", multistream(PAGES, per_stream=1)),
    ],
    ids=["plain", "one stream", "streams of two pages", "streams of one page"],
)
def test_a_dump_gives_the_same_in_every_wrapping(tmp_path: Path, name: str, content: bytes) -> None:
    source = open_source(written(tmp_path, name, content))
    whole = list(source.batches())
    assert list(itertools.chain.from_iterable(batch.passages for batch in whole)) == PASSAGES
    assert source.skipped() == SKIPPED
    assert len(whole) == len(PAGES)
    assert [batch.read for batch in whole] == sorted(batch.read for batch in whole)
    assert whole[-1].read <= (source.total_bytes or 0)


def test_a_dump_goes_on_from_its_marks(tmp_path: Path) -> None:
    source = open_source(written(tmp_path, f"{NAME}.bz2", multistream(PAGES)))
    # the tests of the cutter take every mark
    check_marks(lambda: source, "", "12", "a:b", "-1:0", "5:999999999", numbers=(0, 7))


def test_the_pages_of_several_tasks_come_in_their_order(tmp_path: Path) -> None:
    pages = [page(number, f"Page {number}", f"word {number}") for number in range(1, 2 * TASK_PAGES + 9)]
    found = list(open_source(written(tmp_path, NAME, dump(pages))).passages())
    assert found == [
        Passage(f"{n}#0", f"Page {n}", f"word {n}", URL.format(f"Page_{n}", n + 1000)) for n in range(1, len(pages) + 1)
    ]


def test_a_damaged_block_costs_its_pages_and_stops_nothing(tmp_path: Path) -> None:
    streams = multistream(PAGES, per_stream=1)
    at = streams.index(b"BZh9", streams.index(b"BZh9", 4) + 4) - 20  # the end of the stream with the first page
    damaged = streams[:at] + bytes([streams[at] ^ 0xFF]) + streams[at + 1 :]
    source = open_source(written(tmp_path, f"{NAME}.bz2", damaged))
    assert list(source.passages()) == PASSAGES[3:]
    assert source.skipped() == SKIPPED | {"damaged": 1}


def test_a_dump_says_its_date_licence_and_whom_to_name(tmp_path: Path) -> None:
    source = open_source(written(tmp_path, NAME, dump(PAGES)))
    assert (source.name, source.snapshot_date, source.licence) == (NAME, "2018-12-20", "CC-BY-SA-3.0")
    assert "en.wikipedia.org" in source.attribution
    assert "CC-BY-SA-3.0" in source.attribution
    later = open_source(str(tmp_path / NAME), snapshot_date="2024-01-01")
    assert (later.snapshot_date, later.licence) == ("2024-01-01", "CC-BY-SA-4.0")
    assert open_source(str(tmp_path / NAME), licence="CC0").licence == "CC0"


def test_a_passage_leads_to_its_revision_its_section_and_its_day(tmp_path: Path) -> None:
    text = words("a", 80) + "\n== History ==\n=== ''Early'' [[days]] ===\n" + words("b", 90) + "\n== Now ==\nNow."
    stamped = page(1, "What? A & B", text).replace(
        "<contributor>", "<timestamp>2018-12-19T10:11:12Z</timestamp><contributor>", 1
    )
    path = written(tmp_path, NAME, dump([stamped]))
    found = list(open_source(path).passages())
    assert [one.section for one in found] == [None, "History > Early days"]
    assert {one.url for one in found} == {URL.format("What%3F_A_%26_B", 1001)}
    assert {one.published for one in found} == {"2018-12-19T10:11:12Z"}
    assert " ".join(one.text for one in found) == f"{words('a', 80)} {words('b', 90)} Now."
    by_sentence = list(open_source(path, split="sentences").passages())
    assert [(one.section, len(one.text.split())) for one in by_sentence] == [
        (None, 80),
        ("History > Early days", 90),
        ("Now", 1),
    ]


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://wiki.example.org/index.php/Main", "https://wiki.example.org/index.php/A?oldid=1001"),
        ("https://wiki.example.org/index.php?title=Main", None),
        ("javascript:alert(1)/x", None),
        ("http://[broken/Main", None),
        ("", None),
    ],
)
def test_a_wiki_without_such_addresses_gives_none(tmp_path: Path, base: str, url: str | None) -> None:
    content = dump([page(1, "A", "one")]).replace(b"https://en.wikipedia.org/wiki/Main_Page", base.encode())
    assert [one.url for one in open_source(written(tmp_path, NAME, content)).passages()] == [url]


@pytest.mark.parametrize("content", [b"<html></html>", b"", bz2.compress(b"not a dump")])
def test_a_file_that_is_no_dump_is_refused(tmp_path: Path, content: bytes) -> None:
    path = written(tmp_path, "x.xml.bz2" if content[:3] == b"BZh" else "x.xml", content)
    with pytest.raises(SourceInvalid):
        open_source(path)


def test_a_page_that_a_parser_never_ends_costs_itself() -> None:
    """Tags that are never closed, one within the other: the parser takes ever longer, and nothing interrupts it."""
    pages = [page(1, "A", "one"), page(2, "B", "<i>" * 100_000), page(3, "C", "three")]
    with closing(PageReader(frozenset(), page_seconds=0.2)) as reader:
        found = list(reader.read(PageBytes(text.encode(), "", f"0:{n}", n) for n, text in enumerate(pages)))
    assert [outcome for _, outcome in found] == [
        DumpArticle("1", "A", (Section("one"),), "1001"),
        "too heavy",
        DumpArticle("3", "C", (Section("three"),), "1003"),
    ]


def test_no_process_is_left_when_reading_stops_halfway(tmp_path: Path) -> None:
    batches = open_source(written(tmp_path, NAME, dump(PAGES))).batches()
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []
