"""The history of swaps: one JSON line for each, in the folder of the versions, shared by every replica."""

import dataclasses
import json
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from openbook.storage.durable import append_line, open_regular, reading

HISTORY = "history.jsonl"
BLOCK_BYTES = 1 << 16
MAX_DETAIL = 500
LONGEST_LINE = 1 << 16
# How far back `version_before` looks for the swap that made a version live.
MOST_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class SwapRecord:
    """A requested swap. `outcome` is "ok", "not_durable" or the code of the error that ended it.

    `time` is ISO 8601 in UTC, `actor` asked for it, the service `replica` did it, and `generation` is that service's
    count of swaps after this one; None where there was no flip.
    """

    time: str
    actor: str
    replica: str
    previous: str | None
    version: str
    policy: str
    outcome: str
    generation: int | None
    seconds: float
    detail: str = ""

    def succeeded(self) -> bool:
        return self.generation is not None


_RECORD = TypeAdapter(SwapRecord)


class SwapHistory:
    """`history.jsonl` of a folder. Several processes may append at once: the system puts each write at the end."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / HISTORY

    def append(self, record: SwapRecord) -> None:
        """Bring one record to the disk. Raises OSError where the folder or the file cannot be written."""
        kept = dataclasses.replace(record, detail=record.detail[:MAX_DETAIL])
        fields = {name: _sayable(value) for name, value in dataclasses.asdict(kept).items()}
        line = json.dumps(fields, separators=(",", ":")).encode()
        descriptor = open_regular(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            append_line(descriptor, line)
        finally:
            os.close(descriptor)

    def last(self, n: int) -> tuple[SwapRecord, ...]:
        """The newest `n` records, newest first. Skips lines that are no record; what cannot be read has none."""
        records: list[SwapRecord] = []
        with suppress(OSError):
            found = (record for line in self._lines_backwards() if (record := _read(line)) is not None)
            records.extend(islice(found, n))
        return tuple(records)

    def version_before(self, live: str | None) -> str | None:
        """What was live before the last swap to `live`, by any replica; None where the newest records lack it."""
        records = (one for one in self.last(MOST_RECORDS) if one.succeeded() and one.version == live)
        return next((one.previous for one in records if one.previous not in (None, live)), None)

    def _lines_backwards(self) -> Iterator[bytes]:
        """Whole lines from the end, read a block at a time: the file may have grown for years."""
        with reading(self._path) as file:
            left = file.seek(0, os.SEEK_END)
            rest = b""
            while left > 0:
                start = max(0, left - BLOCK_BYTES)
                file.seek(start)
                first, *lines = (file.read(left - start) + rest).split(b"\n")
                yield from reversed(lines)
                # a longer line is no record, and must not be carried through every block
                left, rest = start, first if len(first) <= LONGEST_LINE else b""
            yield rest


def _sayable(value: object) -> object:
    """Half a surrogate pair, which a request may hold and JSON may not, becomes a question mark."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _read(line: bytes) -> SwapRecord | None:
    try:
        return _RECORD.validate_json(line, strict=True)
    except ValidationError:
        return None
