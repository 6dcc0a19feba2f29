"""What readers said of answers: a file of JSON lines that the operator names, one line for each word of a reader."""

import dataclasses
import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from openbook.storage.durable import append_line, open_regular, reading

Rating = Literal["up", "down"]

# The service appends nothing beyond this: whoever may ask may also rate. Some hundred thousand lines.
MAX_BYTES = 256 << 20
# A question and two answers at their longest, each character escaped.
LONGEST_LINE = 1 << 18
OWNER_ALONE = 0o600


@dataclass(frozen=True, slots=True)
class FeedbackRecord:
    """A reader's word on an answer. `answer` is what the service gave, None where it withheld it.

    `time` is ISO 8601 in UTC; `correction` is what the reader says the answer should be.
    """

    time: str
    request_id: str
    rating: Rating
    correction: str | None
    question: str
    answer: str | None
    version: str
    checkpoint: str


_RECORD = TypeAdapter(FeedbackRecord)


class FeedbackFile:
    """The file at `path`. Several processes may append at once: the system puts each write at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """Make the file where it is missing. Raises OSError where it cannot be appended to."""
        os.close(self._open())

    def append(self, record: FeedbackRecord) -> None:
        """Bring one record to the disk. Raises OSError where the file cannot be written, or has MAX_BYTES."""
        line = json.dumps(dataclasses.asdict(record), separators=(",", ":")).encode()
        # opened each time, so that an operator may move the file away
        descriptor = self._open()
        try:
            if os.fstat(descriptor).st_size + len(line) > MAX_BYTES:
                raise OSError(errno.EFBIG, f"the file has reached {MAX_BYTES:,} bytes")
            append_line(descriptor, line)
        finally:
            os.close(descriptor)

    def records(self) -> Iterator[FeedbackRecord]:
        """The records, oldest first. Skips lines that are none, such as half of one. Raises OSError."""
        with reading(self._path) as file:
            while line := file.readline(LONGEST_LINE):
                try:
                    yield _RECORD.validate_json(line, strict=True)
                except ValidationError:
                    continue

    def _open(self) -> int:
        # what readers ask may be private
        return open_regular(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, OWNER_ALONE)
