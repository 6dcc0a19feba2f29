"""The passages of an index by row: an Arrow file, mapped rather than read."""

import struct
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
MAGIC = b"ARROW1\0\0"
# Fields of the tables Message and RecordBatch in Arrow's Message.fbs.
MESSAGE_HEADER, BATCH_COMPRESSION = 2, 3


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
        self._checked: set[str] = set()
        self._lists = [field.name for field in table.schema if pa.types.is_list(field.type)]
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
        columns, or would not stay in the mapping.
        """
        try:
            # The buffers hold the mapping, which goes with the last of them; the descriptor goes here.
            with pa.memory_map(str(path), "r") as source:
                table = _read_table(source)
            table.validate()
        except (pa.ArrowException, OSError, ValueError, struct.error) as error:
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

        Raises IndexError for a row that is not there, IndexUnreadable where the bytes of one are damaged (each row
        that is read is checked, so that a damaged offset is an error and never a read outside the mapping) or hold
        what no source may say, such as a script for a url; IndexNotResident after close.
        """
        table = self._still_open()
        passages: list[Passage] = []
        for run in _runs(rows):
            if not (run.start >= 0 and run.stop <= self._n_rows):
                raise IndexError(f"row {run.start if run.start < 0 else run.stop - 1} of {self._n_rows}")
            several = table.slice(run.start, len(run))
            try:
                self._check(several)
                found = passages_of(several)
                if (defect := next(filter(None, map(defect_of, found)), None)) is not None:
                    raise ValueError(defect)
                passages += found
            except (pa.ArrowInvalid, ValueError) as error:
                if len(run) == 1:
                    raise self._unreadable(f"row {run.start}: {reason_of(error, Path())}") from error
                for row in run:
                    passages += self.take([row])
        return tuple(passages)

    def _check(self, some: pa.Table) -> None:
        """Raise ArrowInvalid where the bytes of some rows are damaged."""
        some.drop_columns(self._lists).validate(full=True)
        for name in self._lists:
            # of a list, the full check would read the texts of all rows
            for chunk in some.column(name).chunks:
                chunk.validate()
                chunk.flatten().validate(full=True)

    def column(self, name: str) -> pa.ChunkedArray:
        """A whole column, by one of the names of `columns`: `meta.<name>` for a metadata field.

        The first call for a column reads and checks all of it. Raises KeyError for a column that is not there,
        IndexUnreadable where its bytes are damaged, IndexNotResident after close.
        """
        table = self._still_open()
        if name not in self.columns:
            raise KeyError(name)
        column = table.column(name)
        if name not in self._checked:
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                raise self._unreadable(f"column {name}: {reason_of(error, Path())}") from error
            self._checked.add(name)
        return column

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
    """The rows as runs of neighbours: checking a run costs little more than checking a row."""
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
