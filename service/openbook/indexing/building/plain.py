"""Passages that are in memory anyway, as a source that can be read on from any of them."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.sources import Batch, PassageSource


class Passages(Protocol):
    """The least that a build needs to know."""

    @property
    def name(self) -> str: ...

    @property
    def snapshot_date(self) -> str | None: ...

    @property
    def licence(self) -> str: ...

    def passages(self) -> Iterator[Passage]: ...


class PlainSource:
    """A mark is the number of passages. Going on passes over those before it."""

    total_bytes: int | None = None

    def __init__(self, plain: Passages) -> None:
        self._plain = plain
        self.name = plain.name
        self.snapshot_date = plain.snapshot_date
        self.licence = plain.licence
        self.attribution = str(getattr(plain, "attribution", ""))

    def passages(self) -> Iterator[Passage]:
        return self._plain.passages()

    def batches(self, after: str | None = None) -> Iterator[Batch]:
        if after is not None and not after.isdecimal():
            raise SourceInvalid(source=self.name, reason=f"{after!r} is no mark of this source")
        for number, passage in enumerate(self._plain.passages(), start=1):
            if number > int(after or 0):
                yield Batch((passage,), mark=str(number), read=number)

    def skipped(self) -> Mapping[str, int]:
        return {}


def as_source(source: PassageSource | Passages) -> PassageSource:
    """`source` itself where it can be read on from a mark."""
    return source if hasattr(source, "batches") else PlainSource(source)  # type: ignore[return-value]
