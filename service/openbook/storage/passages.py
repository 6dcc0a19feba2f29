"""The passages of an index by row: an Arrow file, mapped rather than read."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from openbook.entities import Metadata, MetadataType, MetadataValue, Passage
from openbook.errors import IndexUnreadable, SourceInvalid
from openbook.storage.manifest import PASSAGES_FILE
from openbook.storage.mapped import Mapped, reason_of
from openbook.storage.passage_fields import PLAIN, RICH_FORMAT, PassageFields, defect_of
from openbook.storage.warming import touch

_TEXTS = {name: pa.string() for name in ("id", "title", "text")}
_SOURCES = {name: pa.string() for name in ("url", "section", "published")}
_ARROW_TYPES: dict[MetadataType, pa.DataType] = {
    "string": pa.string(),
    "integer": pa.int64(),
    "number": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.string(),
    "strings": pa.list_(pa.string()),
}
META = "meta."
# A batch of strings holds at most 2 GiB in Arrow's format; this many passages of 100 words take about 45 MB.
BATCH_ROWS = 65_536
# Beyond so many characters a batch ends sooner: four bytes each are still far below 2 GiB.
BATCH_CHARACTERS = 64 << 20
RUN_ROWS = 1024


def schema_of(fields: PassageFields) -> pa.Schema:
    """The columns of a file of passages that have these fields."""
    columns = [pa.field(name, kind, nullable=False) for name, kind in _TEXTS.items()]
    if fields.passages_format == RICH_FORMAT:
        columns += [pa.field(name, kind) for name, kind in _SOURCES.items()]
        columns += [pa.field(f"{META}{name}", _ARROW_TYPES[kind]) for name, kind in sorted(fields.metadata.items())]
    return pa.schema(columns)


def write_passages(path: Path, passages: Iterable[Passage], fields: PassageFields = PLAIN) -> None:
    """Write an Arrow IPC file with a column for each field; row i is passage i. Holds a batch at a time.

    Raises SourceInvalid for a passage with a field that `fields` lacks or that no index can hold, and
    UnicodeEncodeError for text that UTF-8 cannot hold, which is a lone surrogate.
    """
    schema = schema_of(fields)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        remaining = iter(passages)
        while rows := _batch(remaining):
            names = ("passage_id", "title", "text")
            columns = [[getattr(passage, name) for passage in rows] for name in names]
            columns += _rich_columns(rows, fields)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=schema))


def _batch(passages: Iterator[Passage]) -> list[Passage]:
    """The next passages that fit into a batch; a single one always does."""
    rows: list[Passage] = []
    n_characters = 0
    for passage in passages:
        rows.append(passage)
        n_characters += len(passage.passage_id) + len(passage.title) + len(passage.text)
        n_characters += sum(len(str(value)) for _, value in passage.metadata)
        if len(rows) == BATCH_ROWS or n_characters >= BATCH_CHARACTERS:
            break
    return rows


def _rich_columns(rows: Sequence[Passage], fields: PassageFields) -> list[list[Any]]:
    """The columns after the text; none in format 1."""
    found = PassageFields.of(rows)
    if found != PLAIN:
        for passage in rows:
            if (defect := defect_of(passage)) is not None:
                raise SourceInvalid(source=f"passage {passage.passage_id!r}", reason=defect)
        if fields.united(found, "the passages") != fields:
            raise SourceInvalid(
                source="the passages", reason="one has a field that is not declared, or not of its type"
            )
    if fields.passages_format != RICH_FORMAT:
        return []
    metadata = [dict(passage.metadata) for passage in rows]
    return [
        *([getattr(passage, name) for passage in rows] for name in _SOURCES),
        *([_stored(one.get(name), kind) for one in metadata] for name, kind in sorted(fields.metadata.items())),
    ]


def _stored(value: MetadataValue | None, kind: MetadataType) -> MetadataValue | None:
    # Arrow takes no integer above 2^53 for a float by itself
    return float(value) if kind == "number" and isinstance(value, int) else value


def passages_of(table: pa.Table) -> list[Passage]:
    """The passages of a table with the columns of `schema_of`. Raises ValueError for a value that is none."""
    columns = [column.to_pylist() for column in table.columns]
    if len(columns) == len(_TEXTS):
        return [Passage(*row) for row in zip(*columns, strict=True)]
    n_fixed = len(_TEXTS) + len(_SOURCES)
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

        `fields` are those of the manifest. Raises IndexUnreadable for what is no Arrow file, is cut, has other
        columns.
        """
        try:
            # The buffers hold the mapping, which goes with the last of them; the descriptor goes here.
            with pa.memory_map(str(path), "r") as source:
                table = pa.ipc.open_file(source).read_all()
            table.validate()
        except (pa.ArrowException, OSError, ValueError) as error:
            raise IndexUnreadable(version=version, file=PASSAGES_FILE, reason=reason_of(error, path)) from error
        wanted = schema_of(fields)
        if [(field.name, field.type) for field in table.schema] != [(field.name, field.type) for field in wanted]:
            columns = ", ".join(f"{field.name}: {field.type}" for field in table.schema)
            raise IndexUnreadable(version=version, file=PASSAGES_FILE, reason=f"its columns are {columns:.1000}")
        if any(table.column(name).null_count for name in _TEXTS):
            raise IndexUnreadable(version=version, file=PASSAGES_FILE, reason="a passage lacks its id, title or text")
        return cls(table, version=version, fields=fields)

    def __len__(self) -> int:
        return self._n_rows

    def take(self, rows: Sequence[int]) -> tuple[Passage, ...]:
        """The passages of these rows, in this order.

        Raises IndexError for a row that is not there, IndexUnreadable where its bytes are damaged, IndexNotResident
        after close.
        """
        table = self._whole()
        passages: list[Passage] = []
        for run in _runs(rows):
            if not (run.start >= 0 and run.stop <= self._n_rows):
                raise IndexError(f"row {run.start if run.start < 0 else run.stop - 1} of {self._n_rows}")
            try:
                passages += passages_of(table.slice(run.start, len(run)))
            except ValueError as error:
                reason = f"rows {run.start} to {run.stop - 1}: {reason_of(error, Path())}"
                raise self._unreadable(reason) from error
        return tuple(passages)

    def column(self, name: str) -> pa.ChunkedArray:
        """A whole column, by one of the names of `columns`: `meta.<name>` for a metadata field.

        Raises KeyError for a column that is not there, IndexUnreadable where its bytes are damaged, IndexNotResident
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

    def _unreadable(self, reason: str) -> IndexUnreadable:
        return IndexUnreadable(version=self._version, file=PASSAGES_FILE, reason=reason)


def _runs(rows: Sequence[int]) -> Iterator[range]:
    """The rows as runs of neighbours: reading a run costs little more than reading a row."""
    run = range(0)
    for row in rows:
        if run and row == run.stop and len(run) < RUN_ROWS:
            run = range(run.start, run.stop + 1)
            continue
        if run:
            yield run
        run = range(int(row), int(row) + 1)
    if run:
        yield run


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
