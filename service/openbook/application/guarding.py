"""Whether a version gives the answers that its operator demands, asked before the version becomes live."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from openbook.entities import Answer
from openbook.errors import BrokenAnswer, DeadlineExceeded, GuardFailed, GuardUnavailable, OpenbookError
from openbook.extensions import GUARDS, extensions
from openbook.settings import Settings

if TYPE_CHECKING:
    from openbook.storage.snapshot import IndexSnapshot

# Answers a question, at most so many seconds long, from this snapshot, which need not be live; None: the live one. No
# thread reads the snapshot any more when it returns or raises.
AskOne = Callable[[str, "IndexSnapshot | None", float], Answer]


class GuardedQuestion(Protocol):
    """A question, and what its answer must hold."""

    @property
    def question(self) -> str: ...

    def breaks(self, answer: Answer) -> Sequence[str]:
        """What the answer breaks, a phrase each; none where it holds."""
        ...


@dataclass(frozen=True, slots=True)
class GuardSource:
    """What a plug-in of the group `openbook.guards` makes of the settings.

    `read` gives the questions, and raises an OpenbookError where it cannot. A check asks one at a time, computes for
    `share` of its time at most, and lasts `within_s` seconds at most.
    """

    read: Callable[[], Sequence[GuardedQuestion]]
    within_s: float
    share: float = 0.5


@dataclass(frozen=True, slots=True)
class GuardCheck:
    """How a check of a version ended, `time` in ISO 8601. Of its `questions`, `left` were not asked in time."""

    version: str
    time: str
    questions: int
    broken: int = 0
    left: int = 0


def guard_of(settings: Settings) -> GuardSource | None:
    """That of the first plug-in that makes one of these settings."""
    made = (found.load()(settings) for found in extensions(GUARDS).values())
    return next((one for one in made if one is not None), None)


@dataclass(frozen=True, slots=True)
class Guarding:
    """A guard, and how its questions are asked."""

    guard: GuardSource
    ask: AskOne

    def read(self) -> Sequence[GuardedQuestion]:
        """Raises GuardUnavailable, which says what is wrong with it."""
        try:
            return self.guard.read()
        except OpenbookError as error:
            raise GuardUnavailable("unread", reason=str(error)) from error

    def check(
        self,
        questions: Sequence[GuardedQuestion],
        snapshot: "IndexSnapshot",
        report: Callable[[float], None],
        ending: threading.Event,
    ) -> None:
        """Ask the questions of `snapshot`, and those that break of the live version, too. Raises GuardFailed.

        `report` gets the share that is done before each, and ends the check by what it raises.
        """
        until, broken = time.monotonic() + self.guard.within_s, list[BrokenAnswer]()
        version, asked, computed = snapshot.info.version, 0, 0.0

        def answer_of(question: str, read: "IndexSnapshot | None") -> Answer:
            nonlocal computed
            answer = self.ask(question, read, until - time.monotonic())
            seconds = answer.source.seconds.total - answer.source.seconds.queue
            computed += seconds
            rest = seconds * (1 / self.guard.share - 1)
            ending.wait(min(rest, max(0.0, until - time.monotonic())))
            return answer

        try:
            for asked, one in enumerate(questions):
                report(asked / len(questions))
                after = answer_of(one.question, snapshot)
                if demands := one.breaks(after):
                    before = answer_of(one.question, None)
                    broken.append(BrokenAnswer(one.question, "; ".join(demands), before.answer, after.answer))
        except DeadlineExceeded as error:
            late = {"n_left": len(questions) - asked, "seconds": self.guard.within_s, "computed": computed}
            raise GuardFailed("time", version=version, n=len(questions), broken=tuple(broken), **late) from error
        if broken:
            raise GuardFailed(version=version, n=len(questions), broken=tuple(broken))
