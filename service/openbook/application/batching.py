"""Questions that wait together are computed together, and none of them feels its neighbours.

A batch is what waits when a thread becomes free: nobody waits for company. The question that has waited longest leads
it, and takes along those that are like it, in their order. So whoever waits is led on sooner or later, whatever else
comes in, and a lone question is a batch of one.

What happens to one stays with one. Whose time is up, or whose client has gone, leaves between two steps: the place is
free and the waiter hears at once, while the others are computed on without it. An error of a batch may be that of any
question in it, so each that is left is computed again alone, and hears of its own.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

from openbook.application.turn import Abandoned, Turn
from openbook.errors import DeadlineExceeded

Q = TypeVar("Q")
T = TypeVar("T")


class Batch(Generic[Q]):
    """Questions that are computed together, as the thread sees them that computes them."""

    def __init__(self, waiters: Sequence["Waiter[Q, Any]"]) -> None:
        self._waiters = waiters
        self.questions = tuple(waiter.question for waiter in waiters)
        self.turns = tuple(waiter.turn for waiter in waiters)

    def check(self) -> tuple[int, ...]:
        """To be called between steps. Lets go of those whose time is up or whose client has gone: their numbers.

        Raises Abandoned when none is left.
        """
        gone = tuple(number for number, waiter in enumerate(self._waiters) if not waiter.stays())
        if len(gone) == len(self._waiters):
            # their places are free once the thread has given back what it holds
            raise Abandoned
        for number in gone:
            self._waiters[number].part()
        return gone


@dataclass(frozen=True, slots=True)
class Together(Generic[Q, T]):
    """How questions that are alike are computed in one go.

    Where `like` is equal, `compute` must be able to stand for that of the other: it is called with a batch of at most
    `most` questions and returns their results in order.
    """

    like: Hashable
    compute: Callable[[Batch[Q]], Sequence[T]]
    most: int = 1


@dataclass(slots=True, eq=False)
class Waiter(Generic[Q, T]):
    """A question with a place, and the future on which its asker waits."""

    question: Q
    together: Together[Q, T]
    turn: Turn
    future: Future[T] = field(default_factory=Future)
    _parting: BaseException | None = None

    def stays(self) -> bool:
        """Whether its result is still wanted; why not is remembered."""
        if self._parting is None:
            try:
                self.turn.check()
            except (Abandoned, DeadlineExceeded) as error:
                self._parting = error
        return self._parting is None

    def part(self) -> None:
        """Tell the asker of one that does not stay, and free its place."""
        if self._parting is not None and not self.future.done():
            self.future.set_exception(self._parting)


def company(waiting: Iterable[Waiter[Any, Any]]) -> list[Waiter[Any, Any]]:
    """The next batch of those that wait, oldest first: the oldest and as many like it as go together."""
    line = iter(waiting)
    leader = next(line, None)
    if leader is None:
        return []
    together = leader.together
    alike = (waiter for waiter in line if waiter.together.like == together.like)
    return [leader, *islice(alike, together.most - 1)]


def compute(waiters: Sequence[Waiter[Any, Any]]) -> None:
    """Give every one of them its result or its error."""
    try:
        batch = Batch(waiters)
        batch.check()
        computed = list(zip(waiters, waiters[0].together.compute(batch), strict=True))
    except BaseException as error:
        _fail(waiters, error)
        return
    for waiter, result in computed:
        waiter.part()
        if not waiter.future.done():
            waiter.future.set_result(result)


def _fail(waiters: Sequence[Waiter[Any, Any]], error: BaseException) -> None:
    left = [waiter for waiter in waiters if waiter.stays()]
    for waiter in waiters:
        waiter.part()
    if len(waiters) > 1:
        for waiter in left:
            compute([waiter])
    elif left:
        left[0].future.set_exception(error)
