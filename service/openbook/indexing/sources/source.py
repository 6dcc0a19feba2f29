"""What a source of passages is to those who build an index from it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from openbook.entities import Passage


@dataclass(frozen=True, slots=True)
class Batch:
    """What one article, page or line gave, and where to go on after it.

    `passages` is empty for a page that was left out. `mark` is opaque and lives as long as the source does not
    change: `batches(after=mark)` gives exactly the batches that follow this one. `read` is how many bytes of the
    source have been read by now, of `total_bytes`.
    """

    passages: tuple[Passage, ...]
    mark: str
    read: int


class PassageSource(Protocol):
    """Passages in an order that never changes, and what the manifest says of where they come from.

    `snapshot_date` is None where it is not known. `attribution` is what a reader of the text must be shown, empty
    where nothing. `total_bytes` is None where it cannot be known before everything has been read.
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
        """What follows the batch with the mark `after`, or everything.

        Raises SourceInvalid as `passages` does, and for a mark that is none of this source.
        """
        ...

    def skipped(self) -> Mapping[str, int]:
        """Reasons, and how many pages, lines or files were left out for each.

        Counted from where the last call of `batches` or `passages` began up to the batch that it gave last; whoever
        stops and goes on adds what was counted before.
        """
        ...


def passages_of(source: PassageSource) -> Iterator[Passage]:
    """All passages of a source that knows its batches."""
    for batch in source.batches():
        yield from batch.passages
