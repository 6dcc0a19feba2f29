"""Files of a folder that nobody would write: whatever they hold, a build goes on and its passages can be indexed."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import Passage
from openbook.indexing.passage_fields import MOST_SECTION, defect_of, fields_of, too_long
from openbook.indexing.passage_writing import write_passages
from openbook.indexing.sources import open_source
from openbook.indexing.sources.folder import file_readers
from openbook.indexing.sources.folder_file import FolderFile
from openbook.indexing.sources.markdown import FRONT_MATTER, read_markdown
from tests.openbook.indexing.sources.test_folder import pdf

# Pieces of which front matter is made, sound and odd.
KINDS = ("bool", "int", "float", "timestamp", "binary", "set", "omap", "null", "str")
TAGS = ["", *(f"!!{kind} " for kind in KINDS), "!x "]
VALUES = ["maybe", "''", "1_0", "0x", "0b", "-", ".inf", ".nan", "1:1:1", "2018-13-01", "2018-01-01 10:00:00 +99:99"]
VALUES += ["&a [*a]", "*a", "{a: 1}", "[x, [y]]", '"\\uD800"', '"\\0"', "|\n  text", "? k\n: v", "9" * 5000, "--- x"]
VALUES += ["0001-01-01 00:00:00 +12:00", "[2018-01-01, true, 1.5]", "<<: {a: 1}", *"=~%@`\t", "0001-01-01"]
NAMES = ["title", "url", "date", "tags", "draft", "my key", "1", "path", "page", "_", "é", "a" * 100, "? [a]", "<<"]
fields = st.tuples(st.sampled_from(NAMES), st.sampled_from(TAGS), st.sampled_from(VALUES)).map(
    lambda one: f"{one[0]}: {one[1]}{one[2]}"
) | st.builds("{} = {}".format, st.sampled_from(NAMES), st.sampled_from([*VALUES, "10:00:00", "0x" + "f" * 99]))
lines = st.sampled_from(["# a", "#", "###### b #", "```", "~~~~", "  ", "---", "text.", "# " + "c" * 2000, "\r", "\0"])
markdown = st.builds(
    lambda mark, front, body: "\n".join([mark, *front, mark, *body]),
    st.sampled_from(["---", "+++"]),
    st.lists(fields | st.text(max_size=20), max_size=4),
    st.lists(lines | st.text(max_size=20), max_size=12),
)


def check(folder: Path) -> list[Passage]:
    """The passages of a folder, each of which an index holds, together with all others."""
    found = list(open_source(str(folder)).passages())
    assert [reason for one in found for reason in (defect_of(one), too_long(one)) if reason is not None] == []
    write_passages(folder / ".passages", found, fields_of(found))
    return found


@settings(max_examples=60)
@given(texts=st.lists(markdown, min_size=1, max_size=3))
def test_any_markdown_gives_passages_that_an_index_holds(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("notes")
    for number, text in enumerate(texts):
        (folder / f"{number}.md").write_bytes(text.encode("utf-8", "surrogatepass"))
    check(folder)


@pytest.mark.parametrize("tag", TAGS)
def test_an_odd_value_costs_at_most_its_front_matter(tag: str) -> None:
    for value in VALUES:
        text = f"---\na: {tag}{value}\n---\nText."
        assert FRONT_MATTER.match(text)
        file = read_markdown(text)
        assert [section.text for section in file.sections][-1].endswith("Text.")
        assert file.noted in (None, "front matter")


def test_long_headings_cost_neither_time_nor_space(tmp_path: Path) -> None:
    """400 kB of them became a version of 81 MB: each passage repeated the title and the headings above it."""
    long = "x " * 100_000
    text = f"# {long}\n\n## {long}\n\n" + "\n\n".join(f"### {number}\n\nText." for number in range(20_000))
    (tmp_path / "a.md").write_text(text)
    found = check(tmp_path)
    assert len(found) == 20_000
    assert max(len(one.section or "") for one in found) <= MOST_SECTION
    assert (tmp_path / ".passages").stat().st_size < 3500 * len(found)


def mutated(content: bytes, seed: int) -> bytes:
    """The content with bytes exchanged, taken out, repeated or cut off."""
    chance, made = random.Random(seed), bytearray(content)
    for _ in range(chance.randint(1, 12)):
        place = chance.randrange(len(made) or 1)
        match chance.randrange(4):
            case 0:
                made[place : place + 1] = bytes([chance.randrange(256)])
            case 1:
                del made[place : place + chance.randint(1, 40)]
            case 2:
                made[place:place] = made[place : place + 200] * chance.randint(1, 20)
            case _:
                made[place:place] = chance.choice([b"<", b"]]>", b"<!--", b"&#xD800;", b"endobj", b"<<", b"\xff\xfe"])
    return bytes(made)


PAGE = b"""<!DOCTYPE html><html lang="en"><head><title>The sea</title><meta charset="utf-8">
<link rel="canonical" href="https://example.org/sea"><meta property="article:published_time" content="2018-12-20">
</head><body><article><h1>The sea</h1><p>The sea is deep, and most of it has never been seen by anybody.</p>
<h2>Life</h2><table><tr><td>Fish live there</td></tr></table><ul><li>whale</li></ul><blockquote>Said.</blockquote>
</article></body>"""


@pytest.mark.parametrize(("kind", "made"), [(".html", lambda: PAGE), (".pdf", lambda: pdf("A page.", "Another one."))])
def test_a_broken_page_or_pdf_is_read_or_left_out(kind: str, made: Callable[[], bytes]) -> None:
    reader = file_readers()[kind]
    pytest.importorskip(reader.packages[-1])
    sound = made()
    assert isinstance(reader.read(sound), FolderFile)
    reasons: set[str] = set()
    for seed in range(60):
        file = reader.read(mutated(sound, seed))
        if isinstance(file, str):
            reasons.add(file)
            continue
        for text in (file.title or "", *(section.text for section in file.sections)):
            text.encode()
    assert reasons <= {"empty", "broken", "encrypted", "too large", "scanned, without text"}


def test_a_page_on_which_the_library_fails_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    trafilatura = pytest.importorskip("trafilatura")

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(trafilatura, "extract_metadata", fail)
    assert file_readers()[".html"].read(PAGE) == "broken"


@pytest.mark.parametrize("nested", ["<div>", "<ul><li>a", "<dl><dt id=a>a<dd>", "<table><tr><td>a", "<blockquote>a"])
def test_a_page_that_is_nested_without_end_is_read_or_left_out(nested: str) -> None:
    pytest.importorskip("lxml_html_clean")
    file = file_readers()[".html"].read(f"<html><body><p>Text.</p>{nested * 5000}</body></html>".encode())
    assert isinstance(file, FolderFile) or file in ("broken", "empty")


def test_a_cell_that_spans_all_rows_is_repeated_in_few() -> None:
    pytest.importorskip("lxml_html_clean")
    rows = "<tr>" + "<td rowspan=65000 colspan=65000>" * 20
    file = file_readers()[".html"].read(
        f"<html><body><table>{(rows + 'word ' * 99) * 200}</table></body></html>".encode()
    )
    assert isinstance(file, FolderFile)
    assert sum(len(section.text) for section in file.sections) < 1 << 20


def test_a_pdf_that_says_too_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    content = pdf("A page of a text.", "Another one.")
    monkeypatch.setattr("openbook.plugins.documents.pdf_file.LARGEST_TEXT", 20)
    assert file_readers()[".pdf"].read(content) == "too large"


def test_what_a_converter_makes_of_a_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lxml_html_clean")
    monkeypatch.setattr("openbook.indexing.sources.folder.LARGEST_TEXT", 50)
    (tmp_path / "a.html").write_bytes(PAGE)
    source = open_source(str(tmp_path))
    assert list(source.passages()) == []
    assert source.skipped() == {"too large": 1}
