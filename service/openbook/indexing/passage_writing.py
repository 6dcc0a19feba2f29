"""Writes passages.arrow: row i is passage i."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from openbook.entities import MetadataType, MetadataValue, Passage
from openbook.errors import SourceInvalid
from openbook.indexing.passage_fields import defect_of, fields_of, united
from openbook.storage.manifest import RICH_FORMAT
from openbook.storage.passages import PLAIN, SOURCES, PassageFields, schema_of

# A batch of strings holds at most 2 GiB in Arrow's format; this many passages of 100 words take about 45 MB.
BATCH_ROWS = 65_536
# Beyond so many characters a batch ends sooner: four bytes each are still far below 2 GiB.
BATCH_CHARACTERS = 64 << 20


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
    found = fields_of(rows)
    if found != PLAIN:
        for passage in rows:
            if (defect := defect_of(passage)) is not None:
                raise SourceInvalid(source=f"passage {passage.passage_id!r}", reason=defect)
        if united(fields, found, "the passages") != fields:
            raise SourceInvalid(
                source="the passages", reason="one has a field that is not declared, or not of its type"
            )
    if fields.passages_format != RICH_FORMAT:
        return []
    metadata = [dict(passage.metadata) for passage in rows]
    return [
        *([getattr(passage, name) for passage in rows] for name in SOURCES),
        *([_stored(one.get(name), kind) for one in metadata] for name, kind in sorted(fields.metadata.items())),
    ]


def _stored(value: MetadataValue | None, kind: MetadataType) -> MetadataValue | None:
    # Arrow takes no integer above 2^53 for a float by itself
    return float(value) if kind == "number" and isinstance(value, int) else value
