"""A bounded number of questions at a time: a place for each, or a refusal at once.

The place belongs to the work and not to whoever waits for it. A client that hangs up while its question waits frees
the place there and then; while it is computed, the thread notices between two decoder steps, and frees it then.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from openbook.application.batching import Together, Waiter, company, compute
from openbook.application.turn import Abandoned, Turn
from openbook.errors import DeadlineExceeded, NoLiveIndex, Overloaded

Q = TypeVar("Q")
T = TypeVar("T")

# Longer than any single step between two beats: reading fifty passages with a large generator takes seconds.
STALLED_AFTER_S = 60.0
# How much the newest batch weighs in the mean from which Retry-After is computed.
MEAN_WEIGHT = 0.2
SHUTTING_DOWN = "The service is shutting down."


class WorkPool:
    """`workers` threads of our own and `max_queue` places to wait. Not shared with anything else in the process.

    `observe` is told of each batch that is begun how long each of its questions waited, in seconds. `share` is told, in
    the thread that is to compute it, how many threads compute now.
    """

    def __init__(
        self,
        workers: int,
        max_queue: int,
        *,
        observe: Callable[[Sequence[float]], None] = lambda waits: None,
        share: Callable[[int], None] = lambda computing: None,
    ) -> None:
        self._workers = workers
        self._max_queue = max_queue
        self._observe = observe
        self._share = share
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="question")
        self._lock = threading.Lock()
        self._waiting: dict[Future[Any], Waiter[Any, Any]] = {}  # in the order of their coming
        self._running: dict[Future[Any], Waiter[Any, Any]] = {}
        self._serving = 0  # threads that compute, or are about to look for what waits
        self._computing = 0  # those of them that hold a batch
        self._mean_seconds = 1.0
        self._closing = False

    async def run(self, work: Callable[[Turn], T], *, timeout_s: float) -> T:
        """Do `work` in a thread, alone, or raise as `join` does."""
        alone: Together[None, T] = Together(object(), lambda batch: [work(batch.turns[0])])
        return await self.join(None, alone, timeout_s=timeout_s)

    async def join(self, question: Q, together: Together[Q, T], *, timeout_s: float) -> T:
        """Compute `question` in a thread, with what waits there and is like it, and return its own result.

        Raises Overloaded at once when no place is free, DeadlineExceeded in time, and what computing it raised.
        """
        waiter = Waiter(question, together, Turn(timeout_s))
        self._admit(waiter)
        future = waiter.future
        waiting = asyncio.wrap_future(future)
        try:
            await asyncio.wait({waiting}, timeout=waiter.turn.seconds_left())
            if not waiting.done():
                raise DeadlineExceeded(timeout_s=timeout_s)
        finally:
            if not waiting.done():
                waiter.turn.abandon()
                # ends what has not begun; what has, finds that it is abandoned at its next step
                future.cancel()
                waiting.cancel()
        try:
            return waiting.result()
        except (Abandoned, asyncio.CancelledError):
            # not by the client, who is still here: `stop` ended it
            raise NoLiveIndex(hint=SHUTTING_DOWN) from None

    def waiting(self) -> int:
        """Questions that have a place and no thread yet."""
        with self._lock:
            return len(self._waiting)

    def running(self) -> int:
        """Questions that are being computed for somebody."""
        with self._lock:
            return len(self._running)

    async def responds(self, *, within_s: float) -> bool:
        """Whether work gets done: a thread picks up a no-op in time, or all are busy and getting on."""
        with self._lock:
            busy = self._serving >= self._workers
            closing = self._closing
        if closing:
            return False
        if not busy:
            no_op = asyncio.wrap_future(self._executor.submit(_nothing))
            await asyncio.wait({no_op}, timeout=within_s)
            if no_op.done():
                return True
            no_op.cancel()
        now = time.monotonic()
        with self._lock:
            busy = self._serving >= self._workers
            # a thread between two batches has no question to ask
            last = max((waiter.turn.last_beat for waiter in self._running.values()), default=now)
        return busy and now - last < STALLED_AFTER_S

    async def close(self, *, within_s: float) -> bool:
        """Admit nothing more and wait for what was admitted; what is not done in time is ended at its next step.

        True when every thread has ended.
        """
        with self._lock:
            self._closing = True
        drained = await self._drained(within_s)
        self.stop()
        return drained or await self._drained(within_s)

    def stop(self) -> None:
        """Admit nothing more, drop what waits and end what is computed at its next step. Waits for nothing."""
        with self._lock:
            self._closing = True
            left = [*self._running.values(), *self._waiting.values()]
        self._executor.shutdown(wait=False, cancel_futures=True)
        for waiter in left:
            waiter.turn.abandon()
            # ends what has not begun
            waiter.future.cancel()

    async def _drained(self, within_s: float) -> bool:
        until = time.monotonic() + within_s
        while True:
            with self._lock:
                if not self._waiting and not self._running:
                    return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(0.02)

    def _admit(self, waiter: Waiter[Any, Any]) -> None:
        with self._lock:
            if self._closing:
                raise NoLiveIndex(hint=SHUTTING_DOWN)
            places = max(self._workers, len(self._running)) + self._max_queue
            if len(self._waiting) + len(self._running) >= places:
                raise Overloaded(slots=places, retry_after_s=self._retry_after_s())
            self._waiting[waiter.future] = waiter
            if self._serving < self._workers:
                self._executor.submit(self._serve)
                self._serving += 1
        # added before anyone can wait on the future, so that the place is free when the waiter wakes
        waiter.future.add_done_callback(self._leave)

    def _serve(self) -> None:
        while batch := self._next():
            started = time.monotonic()
            self._observe([waiter.turn.queue_seconds for waiter in batch])
            with self._lock:
                self._computing += 1
                computing = self._computing
            self._share(computing)
            compute(batch)
            with self._lock:
                self._computing -= 1
                self._mean_seconds += MEAN_WEIGHT * (time.monotonic() - started - self._mean_seconds)

    def _next(self) -> list[Waiter[Any, Any]]:
        """The next batch; without one this thread has ended its service."""
        with self._lock:
            while taken := company(self._waiting.values()):
                for waiter in taken:
                    del self._waiting[waiter.future]
                # but for those that were cancelled at this moment
                batch = [waiter for waiter in taken if waiter.future.set_running_or_notify_cancel()]
                for waiter in batch:
                    waiter.turn.begin()
                    self._running[waiter.future] = waiter
                if batch:
                    return batch
            self._serving -= 1
            return []

    def _leave(self, future: Future[Any]) -> None:
        with self._lock:
            self._waiting.pop(future, None)
            self._running.pop(future, None)

    def _retry_after_s(self) -> int:
        """Whole seconds until, at the present pace, one of the places should be free."""
        return max(1, math.ceil(self._mean_seconds / self._workers))


def _nothing() -> None:
    """Asks of a thread only that it is there."""
