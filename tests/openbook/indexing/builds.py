"""What tests of a build give it, and what they see of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from openbook.entities import Passage


@dataclass
class Given:
    """Passages of a test as a source without marks."""

    rows: list[Passage]
    name: str = "given"
    snapshot_date: str | None = None
    licence: str = ""

    def passages(self) -> Iterator[Passage]:
        yield from self.rows


@dataclass
class Seen:
    """Remembers what a build reported, and calls `act` at its first report of `stage`."""

    stage: str = ""
    act: Callable[[], object] = lambda: None
    at: int = 0
    steps: list[tuple[int, int | None, str]] = field(default_factory=list)

    def update(self, done: int, total: int | None, what: str) -> None:
        self.steps.append((done, total, what))
        if what == self.stage and done >= self.at:
            self.act()

    def done(self, what: str) -> list[int]:
        return [done for done, _, said in self.steps if said == what]


def interrupt() -> None:
    """As Ctrl-C."""
    raise KeyboardInterrupt
