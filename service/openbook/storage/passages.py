"""The passages of an index by row: an Arrow file, mapped rather than read."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from openbook.entities import Passage
from openbook.errors import IndexUnreadable
from openbook.storage.manifest import PASSAGES_FILE
from openbook.storage.mapped import Mapped
from openbook.storage.warming import touch

COLUMNS = ("id", "title", "text")
SCHEMA = pa.schema([pa.field(name, pa.string(), nullable=False) for name in COLUMNS])
# A batch of strings holds at most 2 GiB in Arrow's format; this many passages of 100 words take about 45 MB.
BATCH_ROWS = 65_536


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

        Raises IndexUnreadable for what is no Arrow file, is cut, or has other columns.
        """
        try:
            # The buffers hold the mapping, which goes with the last of them; the descriptor goes here.
            with pa.memory_map(str(path), "r") as source:
                table = pa.ipc.open_file(source).read_all()
            table.validate()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise IndexUnreadable(version=version, file=PASSAGES_FILE, reason=_first_line(error)) from error
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
                    version=self._version, file=PASSAGES_FILE, reason=f"row {row}: {_first_line(error)}"
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


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
