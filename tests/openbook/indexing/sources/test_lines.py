"""Files of lines: JSON lines and DPR's table, read from any mark on, with errors that name the line."""

import csv
import gzip
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import Passage
from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.sources import open_source
from openbook.indexing.sources.lines import LONGEST_LINE
from tests.openbook.indexing.sources.marks import check_marks

WORDS = " ".join(f"word{number}" for number in range(230))
GOOD = b'{"id": "1", "title": "A", "text": "t"}\n'
HEADER = "id\ttext\ttitle\n"
TABLE = HEADER + '1\tone\tA\n2\t"two\nin two lines"\tA\n\n3\tthree ""\tB\n'
LINES = [
    {"id": 1, "title": "A", "text": "one"},
    {"title": "A", "text": "two"},
    {"title": "A", "text": " ".join(["three"] * 150)},
    {"id": "x", "title": "B", "text": "four"},
    {"title": "A", "text": "five"},
]
JSON_LINES = "\n\n".join(json.dumps(line) for line in LINES)

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


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(
    ("name", "content"), [("x.tsv", TABLE), ("x.jsonl", JSON_LINES), ("x.jsonl", "\ufeff" + JSON_LINES)]
)
def test_what_follows_any_mark_is_exactly_the_rest(tmp_path: Path, name: str, content: str, compressed: bool) -> None:
    data = gzip.compress(content.encode()) if compressed else content.encode()
    path = written(tmp_path, f"{name}.gz" if compressed else name, data)
    whole = check_marks(lambda: open_source(str(path)), "", "7", "line:1", "line:a:2", "line:1:-2")
    assert len(whole) == (3 if name == "x.tsv" else 5)
    assert whole[-1].read == len(data) == open_source(str(path)).total_bytes
    plain = written(tmp_path, f"plain-{name}", content)
    assert [batch.passages for batch in whole] == [batch.passages for batch in open_source(str(plain)).batches()]


# --- JSON lines --------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(passages=st.lists(st.builds(Passage, texts, texts, filled), max_size=5, unique_by=lambda p: p.passage_id))
def test_a_line_with_an_id_is_a_passage_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, passages: list[Passage]
) -> None:
    """U+2028 and U+0085 end a line for Python's str, and not for JSON."""
    lines = [
        json.dumps({"id": p.passage_id, "title": p.title, "text": p.text}, ensure_ascii=False) + "\n" for p in passages
    ]
    assert read(written(tmp_path_factory.mktemp("source"), "x.jsonl", "".join(lines))) == passages


def test_a_line_without_an_id_is_an_article_and_split(tmp_path: Path) -> None:
    lines = [{"title": "A", "text": WORDS}, {"title": "B", "text": "short"}, {"title": "A", "text": "more of it"}]
    passages = read(written(tmp_path, "x.jsonl", "\n".join(map(json.dumps, lines))))
    found = [(p.passage_id, p.title, len(p.text.split())) for p in passages]
    assert found == [("A#0", "A", 100), ("A#1", "A", 100), ("A#2", "A", 30), ("B#0", "B", 1), ("A#3", "A", 3)]
    assert " ".join(p.text for p in passages[:3]) == WORDS


@pytest.mark.parametrize(
    ("line", "passage"),
    [
        (json.dumps({"id": "1", "title": "A", "text": WORDS}), Passage("1", "A", WORDS)),
        (json.dumps({"id": 7, "title": "A", "text": "t", "uri": "u"}), Passage("7", "A", "t")),
        ('\ufeff{"id": "1", "title": "A", "text": "t"}\r\n\n  \n', Passage("1", "A", "t")),
    ],
    ids=["a long passage", "a number and another field", "a byte order mark and blank lines"],
)
def test_a_passage_is_not_split_and_what_surrounds_it_ignored(tmp_path: Path, line: str, passage: Passage) -> None:
    assert read(written(tmp_path, "x.jsonl", line)) == [passage]


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
        (b'{"id": "2", "title": "A", "text": " \\n"}', "text is empty"),
        (b'{"id": "2", "title": "A", "text": "\\ud800"}', "text holds half of a surrogate pair"),
        (b'{"id": "2", "title": "\xff", "text": "t"}', "not UTF-8"),
        (
            json.dumps({"id": "2", "title": "A", "text": "w " * 20_000}).encode(),
            "text has 40,000 characters, more than",
        ),
        (
            json.dumps({"id": "2" * 3000, "title": "A", "text": "t"}).encode(),
            "id has 3,000 characters, more than 2,048",
        ),
        (json.dumps({"title": "A" * 1025, "text": "t"}).encode(), "title has 1,025 characters, more than 1,024"),
        (b'{"id": "2", "title": "A", "text": "t", "url": "/relative"}', "url: '/relative' is no http"),
        (b'{"id": "2", "title": "A", "text": "t", "published": "2018"}', "published is '2018', no date"),
        (b'{"id": "2", "title": "A", "text": "t", "metadata": []}', "metadata is no object"),
        (b'{"id": "2", "title": "A", "text": "t", "metadata": {"a": {}}}', "metadata.a is no text, number"),
        (b'{"id": "2", "title": "A", "text": "t", "metadata": {"a": ["\\udfff"]}}', "metadata.a holds half"),
        (b'{"id": "2", "title": "A", "text": "t", "metadata": {"a": NaN}}', "metadata.a: nan is no number"),
        (b'{"id": "2", "title": "A", "text": "t", "metadata": {"a b": 1}}', "metadata: 'a b' is no name"),
        (b'{"title": "A", "text": "t", "metadata": {"a": 99999999999999999999}}', "metadata.a: .* 64 bits"),
    ],
)
def test_a_bad_line_of_json_is_named_with_its_number(tmp_path: Path, line: bytes, said: str) -> None:
    refused(written(tmp_path, "x.jsonl", GOOD + b"\n" + line + b"\n" + GOOD), rf"x\.jsonl:3: {said}")


FULL = {
    "url": "https://example.org/a",
    "section": "One > Two",
    "published": "2018-12-20T12:00:00.5+02:00",
    "metadata": {"tags": ["x", "y"], "n": 3, "none": None, "ok": True},
}
FILLED = ("https://example.org/a", "One > Two", "2018-12-20T10:00:00Z", (("n", 3), ("ok", True), ("tags", ("x", "y"))))


def test_a_line_says_where_it_is_from(tmp_path: Path) -> None:
    lines = [{"id": "1", "title": "A", "text": "t"} | FULL, {"title": "B", "text": WORDS} | FULL]
    found = read(written(tmp_path, "x.jsonl", "\n".join(map(json.dumps, lines))))
    assert found[0] == Passage("1", "A", "t", *FILLED)
    assert [(one.passage_id, one.url, one.section, one.published, one.metadata) for one in found[1:]] == [
        (f"B#{n}", *FILLED) for n in range(3)
    ]


@pytest.mark.parametrize(
    ("given", "moment"),
    [
        ("2018-12-20", "2018-12-20"),
        ("2018-12-20T10:00:00", "2018-12-20T10:00:00Z"),
        ("2018-12-20 10:00", "2018-12-20T10:00:00Z"),
        ("2018-12-20T23:30:00-05:00", "2018-12-21T04:30:00Z"),
        ("0999-01-01T00:00:00Z", "0999-01-01T00:00:00Z"),
    ],
)
def test_a_time_of_publishing_is_brought_into_one_form(tmp_path: Path, given: str, moment: str) -> None:
    line = {"id": "1", "title": "A", "text": "t", "published": given}
    assert [one.published for one in read(written(tmp_path, "x.jsonl", json.dumps(line)))] == [moment]


def test_a_field_of_another_type_than_before_is_named_with_its_line(tmp_path: Path) -> None:
    lines = [{"id": str(n), "title": "A", "text": "t", "metadata": {"n": n}} for n in range(3)]
    lines.append({"id": "x", "title": "A", "text": "t", "metadata": {"n": "3"}})
    path = written(tmp_path, "x.jsonl", "\n".join(map(json.dumps, lines)))
    refused(path, r"x\.jsonl:4: metadata field 'n' has values of type integer and of type string")


def test_articles_are_split_at_sentences_when_asked_for(tmp_path: Path) -> None:
    forty = " ".join(["word"] * 39) + " end."
    path = written(tmp_path, "x.jsonl", json.dumps({"title": "A", "text": f"{forty} {forty} {forty}"}))
    source = open_source(str(path), split="sentences")
    assert [len(one.text.split()) for one in source.passages()] == [80, 40]
    assert source.choices == {"split": "sentences"}
    assert [len(one.text.split()) for one in read(path)] == [120]


def test_an_address_is_made_of_title_or_id_only_when_asked_for(tmp_path: Path) -> None:
    lines = [{"id": "a/1", "title": "Rock & roll?", "text": "t"}, {"id": "2", "title": "B", "text": "t"} | FULL]
    path = written(tmp_path, "x.jsonl", "\n".join(map(json.dumps, lines)))
    assert [one.url for one in read(path)] == [None, FULL["url"]]
    made = open_source(str(path), url_template="https://a.org/{id}?t={title}")
    assert [one.url for one in made.passages()] == ["https://a.org/a/1?t=Rock%20%26%20roll%3F", FULL["url"]]
    table = written(tmp_path, "x.tsv", TABLE)
    assert {one.url for one in open_source(str(table)).passages()} == {None}
    source = open_source(str(table), url_template="https://en.wikipedia.org/wiki/{title}")
    assert [one.url for one in source.passages()] == [f"https://en.wikipedia.org/wiki/{t}" for t in "AAB"]
    assert source.choices == {"url template": "https://en.wikipedia.org/wiki/{title}"}


@pytest.mark.parametrize(
    "template",
    [
        "https://a.org/",
        "{title}",
        "https://a.org/{name}",
        "https://a.org/{title!r}",
        "https://a.org/{title:>99999999}",
        "https://{",
    ],
)
def test_a_template_that_makes_no_address_is_refused(tmp_path: Path, template: str) -> None:
    path = written(tmp_path, "x.jsonl", GOOD)
    with pytest.raises(SettingInvalid, match="--url-template"):
        open_source(str(path), url_template=template)


def test_what_a_source_has_no_use_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingInvalid, match="--split"):
        open_source(str(written(tmp_path, "x.tsv", TABLE)), split="sentences")
    with pytest.raises(SettingInvalid, match="--split"):
        open_source("wiki-2016", split="words")


# --- DPR's table -------------------------------------------------------------------------------------------


def test_a_line_of_dprs_table_is_a_passage(tmp_path: Path) -> None:
    lines = '1\t"Aaron (or ""Ahärôn"") is a prophet"\tAaron\r\n2\tHe spoke for Moses\tAaron\n'
    assert read(written(tmp_path, "psgs.tsv", HEADER + lines)) == [
        Passage("1", "Aaron", 'Aaron (or "Ahärôn") is a prophet'),
        Passage("2", "Aaron", "He spoke for Moses"),
    ]


@settings(max_examples=25)
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
        (HEADER.encode() + b"1\ta\t" + b"b" * 1025 + b"\n", ":2: title has 1,025 characters"),
        (HEADER.encode() + b"1\ta\tb\n2\t\xff\tb\n", ":3: not UTF-8"),
        (HEADER.encode() + b'1\ta\tb\n2\t"never closed\tb\n3\tc\td\n', ":4: unexpected end of data"),
    ],
)
def test_a_bad_line_of_a_table_is_named_with_its_number(tmp_path: Path, lines: bytes, said: str) -> None:
    refused(written(tmp_path, "x.tsv", lines), said)


# --- compressed --------------------------------------------------------------------------------------------


def test_a_damaged_compressed_file_is_refused(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(GOOD.replace(b"1", str(number).encode()) for number in range(2000)))
    refused(written(tmp_path, "cut.jsonl.gz", whole[: len(whole) // 2]), r"cut\.jsonl\.gz:\d+: cannot be read")
    refused(written(tmp_path, "plain.jsonl.gz", GOOD), r"plain\.jsonl\.gz:1: cannot be read")
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    refused(written(tmp_path, "damaged.jsonl.gz", bytes(damaged)), r"damaged\.jsonl\.gz:\d+: ")


@pytest.mark.parametrize("name", ["x.jsonl.gz", "x.tsv.gz"])
def test_a_line_that_unpacks_without_end_is_not_read_whole(tmp_path: Path, name: str) -> None:
    """Where it is read whole, its bytes stand in memory; of this one only the first may."""
    path, whole = tmp_path / name, 8 * LONGEST_LINE
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(whole >> 20):
            file.write(b"[" * (1 << 20))
    tracemalloc.start()
    refused(path, rf"{name}:1: the line has more than 16,777,216 bytes")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < whole // 2


def test_a_row_that_quotation_marks_carry_on_without_end_is_refused(tmp_path: Path) -> None:
    line = '"' + "x" * 50_000 + '\n"\t'
    refused(
        written(tmp_path, "x.tsv", HEADER + line * (LONGEST_LINE // 50_000 + 1)), "the row has more than 16,777,216"
    )


def test_an_article_of_any_length_is_split_where_a_passage_is_refused(tmp_path: Path) -> None:
    text = "w " * 20_000
    assert len(read(written(tmp_path, "x.jsonl", json.dumps({"title": "A", "text": text})))) == 200
