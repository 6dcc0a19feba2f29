"""How a build shows its progress, and what it reports at the end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from openbook.entities import IndexInfo


class Progress(Protocol):
    """Shows how far long work is."""

    def update(self, done: int, total: int | None, what: str) -> None:
        """Stage `what` has `done` of `total`, which is None while it is not known."""
        ...


class Silence:
    """Shows nothing."""

    def update(self, done: int, total: int | None, what: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What was built, from how many articles (titles), and the seconds of each step.

    `skipped` counts by reason what the source left out. `resumed` is how many passages an earlier attempt had
    embedded; seconds and rate are those of this attempt. `index_reason` says why the index is of its type.
    """

    info: IndexInfo
    n_articles: int
    read_seconds: float
    embed_seconds: float
    publish_seconds: float
    skipped: Mapping[str, int] = field(default_factory=dict)
    resumed: int = 0
    index_reason: str = ""

    @property
    def seconds(self) -> float:
        return self.read_seconds + self.embed_seconds + self.publish_seconds

    @property
    def embedded_per_second(self) -> float:
        """Passages a second, 0 if this attempt had none left to embed."""
        embedded = self.info.n_passages - self.resumed
        return embedded / self.embed_seconds if embedded and self.embed_seconds else 0.0

    @property
    def bytes(self) -> int:
        """Bytes of the published version's files."""
        return sum(file.bytes for file in self.info.files.values())
