"""Who is told how far a build is, and what it reports at the end."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from openbook.entities import IndexInfo


class Progress(Protocol):
    """Who shows how far a build is. `total` is None while it is not known."""

    def update(self, done: int, total: int | None, what: str) -> None: ...


class Silence:
    """Shows nothing."""

    def update(self, done: int, total: int | None, what: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What was built, from how many articles (titles), and where the seconds went.

    `skipped` counts by reason what the source left out. `resumed` is how many passages an earlier attempt had
    embedded already; seconds and rate are those of this attempt. `index_reason` says why the index is of its type.
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
        """Passages a second, 0 where this attempt had none left to embed."""
        embedded = self.info.n_passages - self.resumed
        return embedded / self.embed_seconds if embedded and self.embed_seconds else 0.0

    @property
    def bytes(self) -> int:
        """Bytes of the published version's files."""
        return sum(file.bytes for file in self.info.files.values())
