"""What an index build needs of a source of passages."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from openbook.entities import Passage
from openbook.errors import SettingInvalid, SourceInvalid


@dataclass(frozen=True, slots=True)
class PassageBatch:
    """The passages of one article, page or line, and where to continue after it.

    `passages` is empty for a page that was left out. `mark` is opaque and valid until the source changes:
    `batches(after=mark)` gives exactly the batches that follow this one. `read` counts the bytes that have been read of
    the source's `total_bytes`.
    """

    passages: tuple[Passage, ...]
    mark: str
    read: int


class PassageSource(ABC):
    """Passages in an order that never changes, and what the manifest says of their origin.

    `snapshot_date` is None if it is not known. A reader of the text must be shown `attribution`. `total_bytes` is None
    if only reading everything tells it. `choices` are those by which the same file gives other passages.
    """

    attribution = ""

    def __init__(
        self,
        name: str,
        total_bytes: int | None,
        *,
        snapshot_date: str | None = None,
        licence: str = "",
        choices: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.total_bytes = total_bytes
        self.snapshot_date = snapshot_date
        self.licence = licence
        self.choices = choices or {}
        self._skipped: Counter[str] = Counter()

    @abstractmethod
    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        """The batches that follow the one with the mark `after`, or all.

        Raises SourceInvalid where the source cannot be read further, and for a mark that is none of this source.
        """

    def passages(self) -> Iterator[Passage]:
        """All passages from the beginning. Raises SourceInvalid as `batches` does."""
        for batch in self.batches():
            yield from batch.passages

    def skipped(self) -> Mapping[str, int]:
        """Reasons, and how many pages, lines or files were left out for each.

        Counted from the beginning of the last `batches` or `passages` up to its last batch. A build that continues
        from a mark adds its earlier count.
        """
        return dict(+self._skipped)

    def left_out(self) -> str:
        """The names of what `skipped` counts, with their reasons, as far as a reader wants them; empty where it has
        none."""
        return ""


def no_mark(source: str | Path, mark: str) -> SourceInvalid:
    """The error for a mark that is none of this source."""
    return SourceInvalid(source=str(source), reason=f"{mark!r} is no mark of this source")


def unreadable(path: Path, error: Exception) -> SourceInvalid:
    """The error for a file that cannot be read, with the system's reason."""
    return SourceInvalid(source=str(path), reason=f"cannot be read ({getattr(error, 'strerror', None) or error})")


def rows_before(mark: str | None, source: str | Path) -> int:
    """The number of rows before a mark that counts rows; 0 for None. Raises SourceInvalid for any other text."""
    if mark is not None and not mark.isdecimal():
        raise no_mark(source, mark)
    return int(mark or 0)


def refuse(source: str | Path, *, split: str | None = None, url_template: str | None = None) -> None:
    """Raise SettingInvalid for what is given though the source has no use for it."""
    if split is not None:
        raise SettingInvalid(setting="--split", reason=f"{source} brings its passages as they are")
    if url_template is not None:
        raise SettingInvalid(setting="--url-template", reason=f"{source} says its addresses itself")
