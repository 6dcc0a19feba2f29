"""The passages of an index by row: an Arrow file, mapped rather than read."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from openbook.entities import Metadata, MetadataType, MetadataValue, Passage
from openbook.errors import IndexCorrupt
from openbook.storage.manifest import PASSAGES_FILE, PLAIN_FORMAT, RICH_FORMAT
from openbook.storage.mapped import Mapped, checked_rows, reason_of
from openbook.storage.warming import touch

_TEXTS = {name: pa.string() for name in ("id", "title", "text")}
SOURCES = {name: pa.string() for name in ("url", "section", "published")}
ARROW_TYPES: dict[MetadataType, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.string(),
    "strings": pa.list_(pa.string()),
}
META = "meta."
# Rows are read as a run where it is at most so many times as long.
DENSE = 2


@dataclass(frozen=True, slots=True)
class PassageFields:
    """The format of a file of passages, and the type of each metadata field by its name, in the order of names."""

    passages_format: int = PLAIN_FORMAT
    metadata: Mapping[str, MetadataType] = field(default_factory=dict)


PLAIN = PassageFields()


def schema_of(fields: PassageFields) -> pa.Schema:
    """The columns of a file of passages that have these fields."""
    columns = [pa.field(name, kind, nullable=False) for name, kind in _TEXTS.items()]
    if fields.passages_format == RICH_FORMAT:
        columns += [pa.field(name, kind) for name, kind in SOURCES.items()]
        columns += [pa.field(f"{META}{name}", ARROW_TYPES[kind]) for name, kind in sorted(fields.metadata.items())]
    return pa.schema(columns)


def passages_of(table: pa.Table, rows: Sequence[int] | None = None) -> list[Passage]:
    """The passages of a table with the columns of `schema_of`, of these rows or of all.

    Raises ValueError for a value that is none.
    """
    if rows is None:
        columns = [column.to_pylist() for column in table.columns]
    else:
        columns = [[column[row].as_py() for row in rows] for column in table.columns]
    if len(columns) == len(_TEXTS):
        return [Passage(*row) for row in zip(*columns, strict=True)]
    n_fixed = len(_TEXTS) + len(SOURCES)
    names = [name.removeprefix(META) for name in table.schema.names[n_fixed:]]
    return [Passage(*(*row[:n_fixed], _metadata(names, row[n_fixed:]))) for row in zip(*columns, strict=True)]


def _metadata(names: Sequence[str], values: Sequence[Any]) -> Metadata:
    found: list[tuple[str, MetadataValue]] = []
    for name, value in zip(names, values, strict=True):
        if isinstance(value, list):
            if None in value:
                raise ValueError(f"{META}{name} has a list with a null")
            found.append((name, tuple(value)))
        elif value is not None:
            found.append((name, value))
    return tuple(found)


class PassageFile(Mapped[pa.Table]):
    """An opened passages.arrow. Makes strings only of the rows that it is asked for."""

    def __init__(self, table: pa.Table, *, version: str, fields: PassageFields = PLAIN) -> None:
        super().__init__(table, version=version)
        self._n_rows: int = table.num_rows
        self._is_checked = False
        declared: dict[str, MetadataType] = dict.fromkeys(table.schema.names, "string")
        if "published" in declared:
            declared["published"] = "date"
        self.columns: Mapping[str, MetadataType] = declared | {
            f"{META}{name}": kind for name, kind in fields.metadata.items()
        }

    @classmethod
    def open(cls, path: Path, *, version: str, fields: PassageFields = PLAIN) -> "PassageFile":
        """Map the file; nothing but its footer and the heads of its batches is read.

        `fields` are those of the manifest. Raises IndexCorrupt for what is no Arrow file, is cut, has other
        columns.
        """
        try:
            # The buffers hold the mapping, which goes with the last of them; the descriptor goes here.
            with pa.memory_map(str(path), "r") as source:
                table = pa.ipc.open_file(source).read_all()
            table.validate()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise IndexCorrupt("file", version=version, file=PASSAGES_FILE, reason=reason_of(error, path)) from error
        wanted = schema_of(fields)
        if [(field.name, field.type) for field in table.schema] != [(field.name, field.type) for field in wanted]:
            columns = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
            raise IndexCorrupt("file", version=version, file=PASSAGES_FILE, reason=f"its columns are {columns:.1000}")
        if any(table.column(name).null_count for name in _TEXTS):
            raise IndexCorrupt(
                "file", version=version, file=PASSAGES_FILE, reason="a passage lacks its id, title or text"
            )
        return cls(table, version=version, fields=fields)

    def __len__(self) -> int:
        return self._n_rows

    def take(self, rows: Sequence[int]) -> tuple[Passage, ...]:
        """The passages of these rows, in this order.

        Raises IndexError for a row that is not there, IndexCorrupt where its bytes are damaged, IndexNotResident
        after close.
        """
        table = self._whole()
        wanted = checked_rows(rows, len(self)).tolist()  # (n,)
        if not wanted:
            return ()
        first, last = min(wanted), max(wanted)
        try:
            if last - first < DENSE * len(wanted):
                # of neighbours, which a build or an update reads, a row costs a third
                run = passages_of(table.slice(first, last - first + 1))
                return tuple(run[row - first] for row in wanted)
            return tuple(passages_of(table, wanted))
        except ValueError as error:
            raise self._unreadable(f"rows {first} to {last}: {reason_of(error, Path())}") from error

    def rows_of(self, ids: Sequence[str]) -> dict[str, int]:
        """The row of each of these ids that is there. Reads the whole column of ids."""
        column = self.column("id")
        found = np.flatnonzero(pc.is_in(column, value_set=pa.array(ids)))  # (n,)
        return {column[row].as_py(): row for row in found.tolist()}

    def column(self, name: str) -> pa.ChunkedArray:
        """A whole column, by one of the names of `columns`: `meta.<name>` for a metadata field.

        Raises KeyError for a column that is not there, IndexCorrupt where its bytes are damaged, IndexNotResident
        after close.
        """
        table = self._whole()
        if name not in self.columns:
            raise KeyError(name)
        return table.column(name)

    def _whole(self) -> pa.Table:
        """The table. The first call compares every offset with its neighbour: Arrow follows one out of the mapping."""
        table = self._still_open()
        if not self._is_checked:
            for name, column in zip(table.schema.names, table.columns, strict=True):
                if not all(map(_in_order, column.chunks)):
                    raise self._unreadable(f"column {name}: its offsets are not in order")
            self._is_checked = True
        return table

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

    def _unreadable(self, reason: str) -> IndexCorrupt:
        return IndexCorrupt("file", version=self._version, file=PASSAGES_FILE, reason=reason)


def _in_order(array: pa.Array) -> bool:
    """Whether the texts or lists of an array lie one behind the other, within what it holds."""
    if not len(array) or not (pa.types.is_string(array.type) or pa.types.is_list(array.type)):
        return True
    is_list = pa.types.is_list(array.type)
    buffers = array.buffers()
    offsets = np.frombuffer(buffers[1], dtype=np.int32)[: len(array) + 1]  # (N + 1,)
    size = len(array.values) if is_list else buffers[2].size if buffers[2] is not None else 0
    if offsets[0] < 0 or offsets[-1] > size or (np.diff(offsets) < 0).any():
        return False
    return not is_list or _in_order(array.values)
