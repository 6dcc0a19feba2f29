"""What an index build needs of a source of passages."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from openbook.entities import Passage
from openbook.errors import SourceInvalid


@dataclass(frozen=True, slots=True)
class Batch:
    """What one article, page or line gave, and where to continue after it.

    `passages` is empty for a page that was left out. `mark` is opaque and valid until the source changes:
    `batches(after=mark)` gives exactly the batches that follow this one. `read` is how many bytes of the source have
    been read by now, of `total_bytes`.
    """

    passages: tuple[Passage, ...]
    mark: str
    read: int


class PassageSource(Protocol):
    """Passages in an order that never changes, and what the manifest says of where they come from.

    `snapshot_date` is None if it is not known. `attribution` is what a reader of the text must be shown, empty for
    nothing. `total_bytes` is None if it cannot be known before everything has been read.
    """

    @property
    def name(self) -> str: ...

    @property
    def snapshot_date(self) -> str | None: ...

    @property
    def licence(self) -> str: ...

    @property
    def attribution(self) -> str: ...

    @property
    def total_bytes(self) -> int | None: ...

    def passages(self) -> Iterator[Passage]:
        """All passages from the beginning. Raises SourceInvalid where the source cannot be read further."""
        ...

    def batches(self, after: str | None = None) -> Iterator[Batch]:
        """The batches that follow the one with the mark `after`, or all.

        Raises SourceInvalid as `passages` does, and for a mark that is none of this source.
        """
        ...

    def skipped(self) -> Mapping[str, int]:
        """Reasons, and how many pages, lines or files were left out for each.

        Counted from where the last call of `batches` or `passages` began up to the batch that it gave last. A build
        that continues from a mark adds what it counted before.
        """
        ...


class BatchedSource(ABC):
    """A source that gives batches; by default it leaves nothing out and asks for no attribution."""

    attribution = ""

    @abstractmethod
    def batches(self, after: str | None = None) -> Iterator[Batch]: ...

    def passages(self) -> Iterator[Passage]:
        return passages_of(self)

    def skipped(self) -> Mapping[str, int]:
        return {}


def passages_of(source: PassageSource | BatchedSource) -> Iterator[Passage]:
    """All passages of a source that gives batches."""
    for batch in source.batches():
        yield from batch.passages


def no_mark(source: object, mark: str) -> SourceInvalid:
    """The error for a mark that is none of this source."""
    return SourceInvalid(source=str(source), reason=f"{mark!r} is no mark of this source")


def rows_before(mark: str | None, source: object) -> int:
    """The number that a mark is where marks count rows; 0 for None. Raises SourceInvalid for any other text."""
    if mark is not None and not mark.isdecimal():
        raise no_mark(source, mark)
    return int(mark or 0)
