from pathlib import Path
from struct import pack

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import Passage
from openbook.errors import IndexNotResident, IndexUnreadable
from openbook.storage.passages import SCHEMA, PassageFile, write_passages
from tests.openbook.storage.mappings import unmapped_soon

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
    assert file.take([]) == ()


@settings(deadline=None)
@given(passages=st.lists(st.builds(Passage, texts, texts, texts), min_size=1, max_size=8))
def test_any_text_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, passages: list[Passage]) -> None:
    path = tmp_path_factory.mktemp("passages") / "passages.arrow"
    write_passages(path, passages)
    assert list(opened(path).take(range(len(passages)))) == passages


def test_a_file_of_several_batches_is_one_row_of_passages(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openbook.storage.passages.BATCH_ROWS", 7)
    write_passages(path, PASSAGES)
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        assert reader.num_record_batches == 6
        assert not any(field.nullable for field in reader.schema)
    assert list(opened(path).take(range(40))) == PASSAGES


@pytest.mark.parametrize("row", [-1, 40, 10**12])
def test_a_row_that_is_not_there_is_refused(path: Path, row: int) -> None:
    with pytest.raises(IndexError, match=f"row {row} of 40"):
        opened(path).take([0, row])


def test_a_closed_file_says_so(path: Path) -> None:
    file = opened(path)
    file.close()
    file.close()
    with pytest.raises(IndexNotResident):
        file.take([0])
    with pytest.raises(IndexNotResident):
        file.touch()


@pytest.mark.parametrize("content", [b"", b"garbage", b"garbage" * 1000, b"ARROW1\0\0" + b"\0" * 1000 + b"ARROW1"])
def test_garbage_is_unreadable(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(IndexUnreadable, match=r"passages\.arrow"):
        opened(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_cut_file_is_unreadable(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(IndexUnreadable):
        opened(path)


@pytest.mark.parametrize(
    "columns",
    [
        {"id": ["1"], "title": ["t"]},
        {"id": ["1"], "text": ["x"], "title": ["t"]},
        {"id": [1], "title": ["t"], "text": ["x"]},
        {"id": ["1"], "title": ["t"], "text": ["x"], "extra": ["y"]},
    ],
)
def test_other_columns_are_refused(path: Path, columns: dict[str, list[object]]) -> None:
    table = pa.table(columns)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(IndexUnreadable, match="its columns are"):
        opened(path)


def test_a_passage_without_text_is_refused(path: Path) -> None:
    table = pa.table({"id": ["1"], "title": ["t"], "text": pa.array([None], pa.string())})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(IndexUnreadable, match="lacks its id, title or text"):
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
    assert file.take([3]) == (PASSAGES[3],)
    with pytest.raises(IndexUnreadable, match="row 20"):
        file.take([20])


def test_bytes_that_are_no_utf8_are_an_error(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[content.find(b"text of passage 5")] = 0xFF
    path.write_bytes(content)
    with pytest.raises(IndexUnreadable, match="row 5"):
        opened(path).take([5])


def test_the_file_is_mapped_and_its_descriptor_given_back(path: Path) -> None:
    file = opened(path)
    assert str(path) in Path("/proc/self/maps").read_text()
    assert not [link for link in Path("/proc/self/fd").iterdir() if link.resolve() == path]
    file.touch()
    file.close()
    assert unmapped_soon(path)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_compressed_passages_are_refused_before_they_are_unpacked(path: Path, codec: str) -> None:
    """A thousand times smaller than its text: a gigabyte would fit into a file of this kind that nobody looks at."""
    table = pa.table({"id": ["1"], "title": ["t"], "text": ["x" * (64 << 20)]}, schema=SCHEMA)
    with (
        pa.OSFile(str(path), "wb") as sink,
        pa.ipc.new_file(sink, SCHEMA, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer,
    ):
        writer.write_table(table)
    del table
    assert path.stat().st_size < 1 << 20
    before = pa.default_memory_pool().bytes_allocated()
    with pytest.raises(IndexUnreadable, match="compressed"):
        opened(path)
    assert pa.default_memory_pool().bytes_allocated() - before < 1 << 20


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
    with pytest.raises(IndexUnreadable):
        opened(path)


def test_a_footer_with_other_batches_than_the_file_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("openbook.storage.passages.BATCH_ROWS", 20)
    write_passages(path, PASSAGES)
    content = path.read_bytes()
    # the end of the stream in the place of the second batch
    mark = b"\xff" * 4
    second = [place for place in range(0, len(content), 8) if content.startswith(mark, place)][2]
    path.write_bytes(content[:second] + b"\xff\xff\xff\xff" + b"\0" * 4 + content[second + 8 :])
    with pytest.raises(IndexUnreadable, match="1 batches where its footer says 2"):
        opened(path)
