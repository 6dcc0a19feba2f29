"""What tests of a build give it, and what they see of it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from openbook.entities import Passage
from openbook.indexing.sources.source import PassageBatch, PassageSource, rows_before


class Given(PassageSource):
    """Passages of a test. A mark is the number of those before it."""

    def __init__(self, rows: list[Passage]) -> None:
        super().__init__("given", None)
        self.rows = rows

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        first = rows_before(after, self.name)
        for number, passage in enumerate(self.read(), start=1):
            if number > first:
                yield PassageBatch((passage,), mark=str(number), read=number)

    def read(self) -> Iterator[Passage]:
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
