"""Questions that wait together are computed together, and none of them feels its neighbours.

A batch is what waits when a thread becomes free: no job waits for company. The oldest job leads it, and takes along
those with the same key, in their order. So every job is led on sooner or later, whatever else comes in, and a lone job
is a batch of one.

What happens to one job stays with it. A job whose time is up, or whose client has gone, leaves between two steps: its
place is free and its client hears at once, while the others are computed on. An error of a batch may be the fault of
any job in it, so each that is left is computed again alone, and gets its own error. Only a job whose client has
already heard a part of the result is not computed again: the error ends it.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Generic, TypeVar

from openbook.errors import DeadlineExceeded

Q = TypeVar("Q")
T = TypeVar("T")


class Abandoned(Exception):
    """Ends work that has lost its client, between two steps. Never reaches a client."""


@dataclass(slots=True, eq=False)
class Job(Generic[Q, T]):
    """One question with a place, its deadline, and the future on which its client waits.

    Jobs with one `key` may be computed together, by the `compute` of the first of them and at most `limit` at a time:
    it is called with a batch, and returns the results in order. Seconds count from the admission. One that is `last`
    takes no client's place, and begins when no other waits.
    """

    question: Q
    compute: "Callable[[Batch[Q]], Sequence[T]]"
    timeout_s: float
    key: Hashable = None
    limit: int = 1
    last: bool = False
    future: Future[T] = field(default_factory=Future)
    admitted: float = field(default_factory=lambda: time.monotonic())
    begun: bool = False
    queue_seconds: float = 0.0
    last_beat: float = field(default_factory=lambda: time.monotonic())
    abandoned: bool = False
    heard: bool = False
    _reason: BaseException | None = None

    def begin(self) -> None:
        """The wait is over: a thread has taken the job up."""
        self.queue_seconds = self.seconds()
        self.last_beat = time.monotonic()
        self.begun = True

    def seconds(self) -> float:
        return time.monotonic() - self.admitted

    def seconds_left(self) -> float:
        return self.timeout_s - self.seconds()

    def abandon(self) -> None:
        """End the job where it has not begun; where it has, it ends at its next step."""
        self.abandoned = True
        self.future.cancel()

    def is_gone(self) -> bool:
        """Whether its time is up or its client has gone; the job keeps the first reason."""
        self.last_beat = time.monotonic()
        if self._reason is None:
            if self.abandoned:
                self._reason = Abandoned()
            elif self.seconds_left() <= 0:
                self._reason = DeadlineExceeded(timeout_s=self.timeout_s)
        return self._reason is not None

    def fail(self, error: BaseException) -> None:
        """Free the place. The client gets `error`, or the reason why the job is gone."""
        self.is_gone()
        if not self.future.done():
            self.future.set_exception(self._reason or error)


class Batch(Generic[Q]):
    """Jobs that are computed together, as the thread that computes them sees them."""

    def __init__(self, jobs: Sequence[Job[Q, Any]]) -> None:
        self.jobs = jobs
        self.questions = tuple(job.question for job in jobs)

    def check(self) -> tuple[int, ...]:
        """Call this between steps: it lets go of the jobs that are gone, and returns the numbers of all that are.

        Raises Abandoned when none is left.
        """
        gone = tuple(number for number, job in enumerate(self.jobs) if job.is_gone())
        if len(gone) == len(self.jobs):
            # their places are free once the thread has given back what it holds
            raise Abandoned
        for number in gone:
            self.jobs[number].fail(Abandoned())
        return gone


def next_batch(waiting: Iterable[Job[Any, Any]]) -> list[Job[Any, Any]]:
    """The oldest of those that wait, oldest first, with as many of its key as its limit allows."""
    line = iter(waiting)
    first = next(line, None)
    if first is None:
        return []
    return [first, *islice((job for job in line if job.key == first.key), first.limit - 1)]


def compute_jobs(jobs: Sequence[Job[Any, Any]]) -> None:
    """Give each job its result or its error."""
    try:
        batch = Batch(jobs)
        batch.check()
        computed = list(zip(jobs, jobs[0].compute(batch), strict=True))
    except BaseException as error:
        for job in jobs:
            if len(jobs) == 1 or job.heard or job.is_gone():
                job.fail(error)
        for job in jobs:
            if not job.future.done():
                compute_jobs([job])
        return
    for job, result in computed:
        if not job.future.done():
            job.future.set_result(result)
