"""How a build shows its progress, and what it reports at the end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from openbook.entities import IndexInfo

# Receives done, total and the stage. The total is None while it is not known.
Report = Callable[[int, int | None, str], None]


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

    `skipped` counts by reason what the source left out. An earlier attempt had embedded `resumed` passages; seconds and
    rate count this attempt alone.
    """

    info: IndexInfo
    n_articles: int
    skipped: Mapping[str, int]
    resumed: int
    read_seconds: float = 0.0
    embed_seconds: float = 0.0
    publish_seconds: float = 0.0

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
