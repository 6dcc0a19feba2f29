import csv
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.sources import open_source

WORDS = " ".join(f"word{number}" for number in range(230))

# What a line of a table can hold: anything but a lone surrogate and NUL.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=60)
filled = texts.filter(lambda text: bool(text.strip()))


def read(path: Path) -> list[Passage]:
    return list(open_source(str(path)).passages())


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(path: Path, said: str) -> None:
    with pytest.raises(SourceInvalid, match=said):
        read(path)


# --- which source ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "date"), [("wiki-2016", "2016-11-30"), ("wiki-2018", "2018-12-20")])
def test_the_demo_is_named_and_knows_its_date_and_licence(name: str, date: str) -> None:
    source = open_source(name)
    assert (source.snapshot_date, source.licence) == (date, "Apache-2.0")
    assert name.removeprefix("wiki-") in source.name


def test_the_two_years_of_the_demo_are_one_encyclopedia_in_which_facts_changed() -> None:
    then, now = (list(open_source(name).passages()) for name in ("wiki-2016", "wiki-2018"))
    assert then
    assert len({passage.passage_id for passage in then}) == len(then)
    assert {passage.title for passage in then} & {passage.title for passage in now}
    assert {passage.text for passage in then} != {passage.text for passage in now}


def test_a_file_is_described_by_its_name_and_by_what_the_caller_says(tmp_path: Path) -> None:
    path = written(tmp_path, "mine.jsonl", "")
    source = open_source(str(path), snapshot_date="2020-01-01", licence="CC0")
    assert (source.name, source.snapshot_date, source.licence) == ("mine.jsonl", "2020-01-01", "CC0")


@pytest.mark.parametrize("name", ["wiki-2020", "dump.xml.gz", "passages.csv", "x.gz", "", " "])
def test_a_source_of_no_known_kind_is_refused(name: str) -> None:
    with pytest.raises(SourceInvalid, match="neither one of wiki-2016, wiki-2018, wiki-vital nor a file"):
        open_source(name)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceInvalid, match="there is no such file"):
        open_source(str(tmp_path / "absent.tsv"))


# --- JSON lines --------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(passages=st.lists(st.builds(Passage, texts, texts, filled), max_size=5, unique_by=lambda p: p.passage_id))
def test_a_line_with_an_id_is_a_passage_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, passages: list[Passage]
) -> None:
    """U+2028 and U+0085 end a line for Python's str, and not for JSON."""
    lines = [
        json.dumps({"id": p.passage_id, "title": p.title, "text": p.text}, ensure_ascii=False) + "\n" for p in passages
    ]
    path = written(tmp_path_factory.mktemp("source"), "x.jsonl", "".join(lines))
    assert read(path) == passages


def test_a_line_without_an_id_is_an_article_and_split(tmp_path: Path) -> None:
    lines = [{"title": "A", "text": WORDS}, {"title": "B", "text": "short"}, {"title": "A", "text": "more of it"}]
    passages = read(written(tmp_path, "x.jsonl", "\n".join(map(json.dumps, lines))))
    assert [(p.passage_id, p.title, len(p.text.split())) for p in passages] == [
        ("A#0", "A", 100),
        ("A#1", "A", 100),
        ("A#2", "A", 30),
        ("B#0", "B", 1),
        ("A#3", "A", 3),
    ]
    assert " ".join(p.text for p in passages[:3]) == WORDS


def test_a_long_passage_with_an_id_is_not_split(tmp_path: Path) -> None:
    path = written(tmp_path, "x.jsonl", json.dumps({"id": "1", "title": "A", "text": WORDS}))
    assert read(path) == [Passage("1", "A", WORDS)]


def test_an_id_may_be_a_number_and_other_fields_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, "x.jsonl", json.dumps({"id": 7, "title": "A", "text": "t", "url": "u"}))
    assert read(path) == [Passage("7", "A", "t")]


def test_blank_lines_and_a_byte_order_mark_are_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path, "x.jsonl", '\ufeff{"id": "1", "title": "A", "text": "t"}\r\n\n  \n')
    assert read(path) == [Passage("1", "A", "t")]


GOOD = b'{"id": "1", "title": "A", "text": "t"}\n'


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"id": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"id": "2", "text": "t"}', "title is missing"),
        (b'{"title": "A"}', "text is missing"),
        (b'{"id": null, "title": "A", "text": "t"}', "id is no string"),
        (b'{"id": true, "title": "A", "text": "t"}', "id is no string"),
        (b'{"id": "2", "title": "A", "text": ["t"]}', "text is no string"),
        (b'{"id": "2", "title": "A", "text": " \\n"}', "text is empty"),
        (b'{"title": "A", "text": ""}', "text is empty"),
        (b'{"id": "2", "title": "A", "text": "\\ud800"}', "text holds half of a surrogate pair"),
        (b'{"id": "2", "title": "\xff", "text": "t"}', "not UTF-8"),
        (GOOD.strip(), "id '1' is that of line 1"),
    ],
)
def test_a_bad_line_of_json_is_named_with_its_number(tmp_path: Path, line: bytes, said: str) -> None:
    path = written(tmp_path, "x.jsonl", GOOD + b"\n" + line + b"\n" + GOOD)
    refused(path, rf"x\.jsonl:3: {said}")


# --- DPR's table -------------------------------------------------------------------------------------------

HEADER = "id\ttext\ttitle\n"


def test_a_line_of_dprs_table_is_a_passage(tmp_path: Path) -> None:
    lines = '1\t"Aaron (or ""Ahärôn"") is a prophet"\tAaron\r\n2\tHe spoke for Moses\tAaron\n'
    assert read(written(tmp_path, "psgs.tsv", HEADER + lines)) == [
        Passage("1", "Aaron", 'Aaron (or "Ahärôn") is a prophet'),
        Passage("2", "Aaron", "He spoke for Moses"),
    ]


@settings(deadline=None)
@given(passages=st.lists(st.builds(Passage, filled, texts, filled), max_size=5, unique_by=lambda p: p.passage_id))
def test_what_a_csv_writer_writes_is_read(tmp_path_factory: pytest.TempPathFactory, passages: list[Passage]) -> None:
    path = tmp_path_factory.mktemp("source") / "x.tsv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", quoting=csv.QUOTE_ALL)
        writer.writerow(["id", "text", "title"])
        writer.writerows([p.passage_id, p.text, p.title] for p in passages)
    assert read(path) == passages


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (b"", r":1: the header is \[\]"),
        (b"1\ttext\ttitle\n", r":1: the header is \['1'"),
        (HEADER.encode() + b"1\ttext\n", ":2: 2 columns, not 3"),
        (HEADER.encode() + b"1\ta\tb\tc\n", ":2: 4 columns, not 3"),
        (HEADER.encode() + b"1\t\ttitle\n", ":2: text is empty"),
        (HEADER.encode() + b"1\ta\tb\n1\tc\td\n", ":3: id '1' is that of line 2"),
        (HEADER.encode() + b"1\ta\tb\n2\t\xff\tb\n", ":3: not UTF-8"),
        (HEADER.encode() + b'1\ta\tb\n2\t"never closed\tb\n3\tc\td\n', ":4: unexpected end of data"),
    ],
)
def test_a_bad_line_of_a_table_is_named_with_its_number(tmp_path: Path, lines: bytes, said: str) -> None:
    refused(written(tmp_path, "x.tsv", lines), said)


# --- compressed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["x.jsonl", "x.tsv"])
def test_a_compressed_file_is_the_same_source(tmp_path: Path, name: str) -> None:
    content = GOOD if name == "x.jsonl" else HEADER.encode() + b"1\tt\tA\n"
    path = written(tmp_path, f"{name}.gz", gzip.compress(content))
    assert read(path) == [Passage("1", "A", "t")]


def test_a_damaged_compressed_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(GOOD.replace(b"1", str(number).encode()) for number in range(2000)))
    refused(written(tmp_path, "cut.jsonl.gz", whole[: len(whole) // 2]), r"cut\.jsonl\.gz:\d+: cannot be read")
    refused(written(tmp_path, "plain.jsonl.gz", GOOD), r"plain\.jsonl\.gz:1: cannot be read")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    refused(written(tmp_path, "damaged.jsonl.gz", bytes(damaged)), r"damaged\.jsonl\.gz:\d+: ")
