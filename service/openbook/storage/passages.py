"""The passages of an index by row: an Arrow file, mapped rather than read."""

import struct
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from openbook.entities import Passage
from openbook.errors import IndexUnreadable
from openbook.storage.manifest import PASSAGES_FILE
from openbook.storage.mapped import Mapped, reason_of
from openbook.storage.warming import touch

COLUMNS = ("id", "title", "text")
SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=False) for name in COLUMNS])
# A batch of strings holds at most 2 GiB in Arrow's format; this many passages of 100 words take about 45 MB.
BATCH_ROWS = 65_536
MAGIC = b"ARROW1\0\0"
# Fields of the tables Message and RecordBatch in Arrow's Message.fbs.
MESSAGE_HEADER, BATCH_COMPRESSION = 2, 3


def write_passages(path: Path, passages: Iterable[Passage]) -> None:
    """Write an Arrow IPC file with the columns id, title and text; row i is passage i. Holds a batch at a time.

    Raises UnicodeEncodeError for text that UTF-8 cannot hold, which is a lone surrogate.
    """
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, SCHEMA) as writer:
        remaining = iter(passages)
        while rows := list(islice(remaining, BATCH_ROWS)):
            fields = ("passage_id", "title", "text")
            columns = [pa.array([getattr(passage, name) for passage in rows], pa.string()) for name in fields]
            writer.write_batch(pa.record_batch(columns, schema=SCHEMA))


class PassageFile(Mapped[pa.Table]):
    """An opened passages.arrow. Makes strings only of the rows that it is asked for."""

    def __init__(self, table: pa.Table, *, version: str) -> None:
        super().__init__(table, version=version)
        self._n_rows: int = table.num_rows

    @classmethod
    def open(cls, path: Path, *, version: str) -> "PassageFile":
        """Map the file; nothing but its footer and the heads of its batches is read.

        Raises IndexUnreadable for what is no Arrow file, is cut, has other columns, or would not stay in the mapping.
        """
        try:
            # The buffers hold the mapping, which goes with the last of them; the descriptor goes here.
            with pa.memory_map(str(path), "r") as source:
                table = _read_table(source)
            table.validate()
        except (pa.ArrowException, OSError, ValueError, struct.error) as error:
            raise IndexUnreadable(version=version, file=PASSAGES_FILE, reason=reason_of(error, path)) from error
        if [(field.name, field.type) for field in table.schema] != [(field.name, field.type) for field in SCHEMA]:
            columns = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
            raise IndexUnreadable(version=version, file=PASSAGES_FILE, reason=f"its columns are {columns}")
        if any(column.null_count for column in table.columns):
            raise IndexUnreadable(version=version, file=PASSAGES_FILE, reason="a passage lacks its id, title or text")
        return cls(table, version=version)

    def __len__(self) -> int:
        return self._n_rows

    def take(self, rows: Sequence[int]) -> tuple[Passage, ...]:
        """The passages of these rows, in this order.

        Raises IndexError for a row that is not there, IndexUnreadable where the bytes of one are damaged (each row
        that is read is checked, so that a damaged offset is an error and never a read outside the mapping),
        IndexNotResident after close.
        """
        table = self._still_open()
        passages = []
        for row in rows:
            if not 0 <= row < self._n_rows:
                raise IndexError(f"row {row} of {self._n_rows}")
            one = table.slice(int(row), 1)
            try:
                one.validate(full=True)
            except pa.ArrowInvalid as error:
                raise IndexUnreadable(
                    version=self._version, file=PASSAGES_FILE, reason=f"row {row}: {reason_of(error, Path())}"
                ) from error
            passages.append(Passage(*(column[0].as_py() for column in one.columns)))
        return tuple(passages)

    def touch(self, report: Callable[[int], None] | None = None) -> None:
        """Read one byte of every page, so that no question waits for the disk. `report`: see `warming.touch`."""
        buffers = [
            buffer
            for column in self._still_open().columns
            for chunk in column.chunks
            for buffer in chunk.buffers()
            if buffer is not None
        ]
        touch([np.frombuffer(buffer, dtype=np.uint8) for buffer in buffers], report)


def _read_table(source: pa.MemoryMappedFile) -> pa.Table:
    """The passages as views of a mapped Arrow file. Raises ValueError for a body that is compressed.

    Such a body is unpacked into memory, and a small file can ask for any number of gigabytes. Only the metadata of a
    message tells. So this reads message by message; the footer, which could lead elsewhere, is only checked.
    """
    n_batches = pa.ipc.open_file(source).num_record_batches
    source.seek(len(MAGIC))
    messages = pa.ipc.MessageReader.open_stream(source)
    schema = pa.ipc.read_schema(messages.read_next_message())
    batches = []
    for message in messages:
        if message.type != "record batch" or _is_compressed(message.metadata):
            raise ValueError("its passages are compressed or encoded, so that they cannot be mapped")
        batches.append(pa.ipc.read_record_batch(message, schema))
    if len(batches) != n_batches:
        raise ValueError(f"it has {len(batches)} batches where its footer says {n_batches}")
    return pa.Table.from_batches(batches, schema)


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Whether the body of this message is compressed, which Arrow's Message.fbs says and pyarrow does not show."""
    content = memoryview(metadata)

    def number(form: str, at: int) -> int:
        return int(struct.unpack_from(form, content, at)[0])

    def place_of(table: int, field: int) -> int:
        """Where a field of a FlatBuffers table stands, relative to the table; 0 for one that is not there."""
        entries = table - number("<i", table)
        at = 4 + 2 * field
        return number("<H", entries + at) if at < number("<H", entries) else 0

    message = number("<I", 0)
    header = message + place_of(message, MESSAGE_HEADER)
    return place_of(header + number("<I", header), BATCH_COMPRESSION) != 0
