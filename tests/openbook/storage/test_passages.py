from dataclasses import replace
from pathlib import Path
from struct import pack
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.entities import MetadataType, Passage
from openbook.errors import IndexCorrupt, IndexNotResident, SourceInvalid
from openbook.indexing.passage_fields import fields_of
from openbook.indexing.passage_writing import write_passages
from openbook.storage.passages import PassageFields, PassageFile
from tests.openbook.storage.mappings import until_unmapped

PASSAGES = [Passage(f"p{row}", f"Title {row}", f"text of passage {row}" + " and more" * row) for row in range(40)]

# Every character that UTF-8 can hold: NUL, combining marks, right-to-left, astral planes, noncharacters.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_passages(tmp_path / "passages.arrow", PASSAGES)
    return tmp_path / "passages.arrow"


def opened(path: Path) -> PassageFile:
    return PassageFile.open(path, version="v")


def test_rows_come_back_in_the_order_asked_for(path: Path) -> None:
    file = opened(path)
    assert len(file) == 40
    assert file.take([39, 0, 7, 0]) == (PASSAGES[39], PASSAGES[0], PASSAGES[7], PASSAGES[0])
    # neighbours are read as a run
    assert file.take([8, 6, 9, 6]) == (PASSAGES[8], PASSAGES[6], PASSAGES[9], PASSAGES[6])
    assert file.take([]) == ()


@given(passages=st.lists(st.builds(Passage, texts, texts, texts), min_size=1, max_size=8))
def test_any_text_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, passages: list[Passage]) -> None:
    path = tmp_path_factory.mktemp("passages") / "passages.arrow"
    write_passages(path, passages)
    assert list(opened(path).take(range(len(passages)))) == passages


def test_long_passages_make_smaller_batches_so_that_no_column_overflows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openbook.indexing.passage_writing.BATCH_CHARACTERS", 1000)
    long = [Passage(str(row), "t", "a" * 600, metadata=(("path", "b" * 300),)) for row in range(5)]
    write_passages(tmp_path / "long.arrow", long, fields_of(long))
    with pa.memory_map(str(tmp_path / "long.arrow"), "r") as source:
        file = pa.ipc.open_file(source)
        assert [file.get_batch(number).num_rows for number in range(file.num_record_batches)] == [2, 2, 1]
    written = PassageFile.open(tmp_path / "long.arrow", version="v", fields=fields_of(long))
    assert list(written.take(range(5))) == long


@pytest.mark.parametrize("row", [-1, 40, 10**12])
def test_a_row_that_is_not_there_is_refused(path: Path, row: int) -> None:
    with pytest.raises(IndexError, match=f"row {row} of 40"):
        opened(path).take([0, row])


@pytest.mark.parametrize("content", [b"", b"garbage", b"garbage" * 1000, b"ARROW1\0\0" + b"\0" * 1000 + b"ARROW1"])
def test_garbage_is_unreadable(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(IndexCorrupt, match=r"passages\.arrow"):
        opened(path)


def test_a_passage_without_text_is_refused(path: Path) -> None:
    table = pa.table({"id": ["1"], "title": ["t"], "text": pa.array([None], pa.string())})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(IndexCorrupt, match="lacks its id, title or text"):
        opened(path)


@pytest.mark.parametrize("offset", [2**31 - 1, -1])
def test_a_damaged_offset_is_an_error_and_never_a_read_outside_the_file(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    starts = [0]
    for passage in PASSAGES:
        starts.append(starts[-1] + len(passage.text))
    place = content.find(b"".join(start.to_bytes(4, "little") for start in starts))
    assert place > 0
    content[place + 4 * 20 : place + 4 * 21] = (offset & 0xFFFFFFFF).to_bytes(4, "little")
    path.write_bytes(content)
    file = opened(path)
    for row in (3, 20):
        with pytest.raises(IndexCorrupt, match="column text: its offsets are not in order"):
            file.take([row])


def test_bytes_that_are_no_utf8_are_an_error(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.find(b"text of passage 5")] = 0xFF
    path.write_bytes(content)
    with pytest.raises(IndexCorrupt, match="rows 5 to 5"):
        opened(path).take([5])


def test_the_file_is_mapped_and_its_descriptor_given_back(path: Path) -> None:
    file = opened(path)
    assert str(path) in Path("/proc/self/maps").read_text()
    assert not [link for link in Path("/proc/self/fd").iterdir() if link.resolve() == path]
    file.touch()
    file.close()
    until_unmapped(path)


@pytest.mark.parametrize(("place", "value"), [("offset", 1 << 40), ("length", 1 << 40), ("offset", -8), ("length", -1)])
def test_a_buffer_outside_the_file_is_refused(path: Path, place: str, value: int) -> None:
    """The metadata of a batch has the offset and the length of each buffer, two numbers of eight bytes."""
    content = bytearray(path.read_bytes())
    with pa.memory_map(str(path)) as source:
        text = pa.ipc.open_file(source).get_batch(0).column(2).buffers()[2]
        at = text.address - source.read_buffer(1).address
    length = sum(len(passage.text) for passage in PASSAGES)
    body = next(start for start in range(at, 0, -8) if content.find(pack("<qq", at - start, length)) > 0)
    found = content.find(pack("<qq", at - body, length))
    struct_at = found + 8 * (place == "length")
    content[struct_at : struct_at + 8] = pack("<q", value)
    path.write_bytes(content)
    with pytest.raises(IndexCorrupt, match="cannot be read"):
        opened(path)


RICH = [
    Passage(
        "a", "A", "first", "https://example.org/a", "History > Early", "2018-12-20", (("n", 3), ("tags", ("x", "y")))
    ),
    Passage("b", "B", "second"),
    Passage("c", "C", "third", None, None, "2018-12-20T10:00:00Z", (("day", "2018-01-02"), ("n", 0.5), ("ok", False))),
]
TYPES: dict[str, MetadataType] = {"day": "date", "n": "number", "ok": "boolean", "tags": "strings"}


@pytest.fixture
def rich_path(tmp_path: Path) -> Path:
    write_passages(tmp_path / "passages.arrow", RICH, fields_of(RICH))
    return tmp_path / "passages.arrow"


def opened_rich(path: Path, **changed: MetadataType) -> PassageFile:
    return PassageFile.open(path, version="v", fields=PassageFields(2, TYPES | changed))


def test_url_section_date_and_metadata_come_back_as_they_were(rich_path: Path) -> None:
    file = opened_rich(rich_path)
    assert list(file.take([0, 1, 2])) == RICH
    assert fields_of(RICH) == PassageFields(2, TYPES)
    file.touch()


def test_a_column_is_had_whole_by_its_name_in_a_filter(rich_path: Path) -> None:
    file = opened_rich(rich_path)
    assert file.columns["published"] == "date"
    assert [name for name in file.columns if name.startswith("meta.")] == [f"meta.{name}" for name in TYPES]
    assert file.column("meta.n").to_pylist() == [3.0, None, 0.5]
    assert file.column("published").to_pylist() == ["2018-12-20", None, "2018-12-20T10:00:00Z"]
    with pytest.raises(KeyError):
        file.column("meta.other")
    file.close()
    with pytest.raises(IndexNotResident):
        file.column("url")


def test_passages_without_new_fields_are_written_as_they_always_were(tmp_path: Path) -> None:
    """The bytes of format 1, made by the writer of before format 2."""
    passages = [Passage("1", "Zürich", "text one"), Passage("2", "東京", "text two")]
    write_passages(tmp_path / "now", passages, fields_of(passages))
    columns = [[getattr(one, name) for one in passages] for name in ("passage_id", "title", "text")]
    schema = pa.schema([pa.field(name, pa.string(), nullable=False) for name in ("id", "title", "text")])
    with pa.OSFile(str(tmp_path / "then"), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch([pa.array(column, pa.string()) for column in columns], schema=schema))
    assert (tmp_path / "now").read_bytes() == (tmp_path / "then").read_bytes()


@pytest.mark.parametrize(
    "fields",
    [
        PassageFields(),
        PassageFields(2, {}),
        PassageFields(2, TYPES | {"n": "integer"}),
        PassageFields(2, TYPES | {"more": "string"}),
        PassageFields(2, {"days": "date", "n": "number", "ok": "boolean", "tags": "strings"}),
    ],
)
def test_columns_other_than_the_manifest_says_are_refused(rich_path: Path, fields: PassageFields) -> None:
    with pytest.raises(IndexCorrupt, match="its columns are id: string, title: string"):
        PassageFile.open(rich_path, version="v", fields=fields)


@pytest.mark.parametrize("name", ["section", "meta.tags"])
def test_a_damaged_offset_of_a_new_column_is_an_error(rich_path: Path, name: str) -> None:
    content = bytearray(rich_path.read_bytes())
    with pa.memory_map(str(rich_path)) as source:
        offsets = pa.ipc.open_file(source).get_batch(0).column(name).buffers()[1]
        at = offsets.address - source.read_buffer(1).address
    content[at + 4 : at + 8] = (2**31 - 1).to_bytes(4, "little")
    rich_path.write_bytes(content)
    for read in (lambda file: file.take([0]), lambda file: file.column(name)):
        with pytest.raises(IndexCorrupt, match=f"column {name}: its offsets"):
            read(opened_rich(rich_path))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"url": "javascript:alert(1)"}, "url: 'javascript:alert"),
        ({"url": "https://a/" + "b" * 2048}, "url"),
        ({"section": ""}, "section: it has 0"),
        ({"published": "20.12.2018"}, "published"),
        ({"metadata": (("b", 1), ("a", 1))}, "not sorted"),
        ({"metadata": (("a", 1), ("a", 2))}, "twice"),
        ({"metadata": (("a-b", 1),)}, "'a-b' is no name"),
        ({"metadata": (("a", float("nan")),)}, "metadata.a"),
        ({"metadata": (("a", 1 << 63),)}, "64 bits"),
        ({"metadata": (("a", "x" * 16_385),)}, "16,384 characters"),
    ],
)
def test_a_field_that_no_index_can_hold_is_not_written(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    passage = replace(PASSAGES[0], **changed)
    with pytest.raises(SourceInvalid, match=f"passage 'p0': .*{said}"):
        write_passages(tmp_path / "passages.arrow", [passage], fields_of([passage]))
