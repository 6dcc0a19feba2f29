"""Files of lines, plain or compressed with gzip: read from any line on, and checked for ids that come twice."""

import gzip
import zlib
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.sources.source import Batch, passages_of


@dataclass(frozen=True, slots=True)
class Position:
    """After a line: how many lines and how many bytes, decompressed, lie before; `replay` says that going on from
    here needs what the lines before said."""

    line: int = 0
    offset: int = 0
    replay: bool = False

    def __str__(self) -> str:
        return f"{'replay' if self.replay else 'line'}:{self.line}:{self.offset}"


class SeenIds:
    """Which id stood in which line.

    Ids that count upwards, line by line, take one entry together: the 21 million of DPR's table take no memory.
    """

    def __init__(self) -> None:
        self._lines: dict[str, int] = {}
        # runs of consecutive numbers in consecutive lines, in ascending order: (first id, last id, line of the first)
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._first_lines: list[int] = []

    def add(self, passage_id: str, line: int) -> int | None:
        """The line in which this id stood before, or None when it is new."""
        number = self._number(passage_id)
        if number is None:
            before = self._lines.setdefault(passage_id, line)
            return None if before == line else before
        run = bisect_right(self._firsts, number) - 1
        if run >= 0 and number <= self._lasts[run]:
            return self._first_lines[run] + number - self._firsts[run]
        if passage_id in self._lines:
            return self._lines[passage_id]
        if not self._firsts or number > self._lasts[-1]:
            self._append(number, line)
        else:
            self._lines[passage_id] = line
        return None

    def _append(self, number: int, line: int) -> None:
        if self._firsts and number - self._lasts[-1] == 1 and line - self._first_lines[-1] == number - self._firsts[-1]:
            self._lasts[-1] = number
            return
        self._firsts.append(number)
        self._lasts.append(number)
        self._first_lines.append(line)

    @staticmethod
    def _number(passage_id: str) -> int | None:
        """The number that an id is, when that number is written in no other way. Longer ones are looked up as text."""
        if len(passage_id) > 18 or not (passage_id.isascii() and passage_id.isdigit()):
            return None
        return int(passage_id) if passage_id == "0" or passage_id[0] != "0" else None


class FileSource:
    """A file of lines in UTF-8. What cannot be read is named with its line, and so is an id that comes twice.

    Where reading begins behind a mark, ids are compared with those behind it.
    """

    attribution = ""

    def __init__(self, path: Path, *, snapshot_date: str | None = None, licence: str = "") -> None:
        self._path = path
        self._read = 0
        self.name = path.name
        self.snapshot_date = snapshot_date
        self.licence = licence
        self.total_bytes: int | None = path.stat().st_size

    def passages(self) -> Iterator[Passage]:
        """Raises SourceInvalid at the first line that is none."""
        return passages_of(self)

    def batches(self, after: str | None = None) -> Iterator[Batch]:
        """Raises SourceInvalid at the first line that is none, and for a mark that is none of this file."""
        start = Position() if after is None else self._position(after)
        seen = SeenIds()
        for position, passages in self._passages_from(start):
            for passage in passages:
                if not passage.text.strip():
                    raise self._invalid(position.line, "text is empty")
            for passage_id in {passage.passage_id for passage in passages}:
                before = seen.add(passage_id, position.line)
                if before is not None:
                    raise self._invalid(position.line, f"id {passage_id!r} is that of line {before}")
            if position.line > start.line:
                yield Batch(passages, mark=str(position), read=self._read)

    def skipped(self) -> Mapping[str, int]:
        return {}

    def _passages_from(self, start: Position) -> Iterator[tuple[Position, tuple[Passage, ...]]]:
        """The passages of each line behind `start`, or of each line at all when `start` asks for a replay."""
        raise NotImplementedError

    def _lines(self, start: Position) -> Iterator[tuple[int, int, str]]:
        """Lines with their numbers, from 1, and the offsets of their ends; ended by a line feed and by nothing else
        that Unicode knows. A compressed file is read from its beginning, and what lies before `start` passed over."""
        number, offset = start.line, start.offset
        try:
            with self._path.open("rb") as raw:
                file = gzip.GzipFile(fileobj=raw) if self._path.suffix == ".gz" else raw
                file.seek(offset)
                for line in file:
                    number += 1
                    offset += len(line)
                    self._read = offset if file is raw else raw.tell()
                    yield number, offset, line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise self._invalid(number, f"not UTF-8 ({error.reason} at byte {error.start})") from error
        except (OSError, EOFError, zlib.error) as error:
            raise self._invalid(number + 1, f"cannot be read ({error})") from error

    def _position(self, mark: str) -> Position:
        kind, *numbers = mark.split(":")
        if kind not in ("line", "replay") or len(numbers) != 2 or not all(n.isascii() and n.isdigit() for n in numbers):
            raise SourceInvalid(source=str(self._path), reason=f"{mark!r} is no mark of this source")
        return Position(int(numbers[0]), int(numbers[1]), replay=kind == "replay")

    def _invalid(self, number: int, reason: str) -> SourceInvalid:
        return SourceInvalid(source=f"{self._path}:{number}", reason=reason)
