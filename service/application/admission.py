"""A bounded number of questions at a time: a slot for each, or a refusal at once.

The slot belongs to the work and not to whoever waits for it. A client that hangs up while its question waits frees
the slot there and then; while it is computed, the thread notices between two decoder steps, ends, and frees it then.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from service.errors import DeadlineExceeded, NoLiveIndex, Overloaded

T = TypeVar("T")

# Longer than any single step between two beats: reading fifty passages with a large generator takes seconds.
STALLED_AFTER_S = 60.0
# How much the newest question weighs in the mean from which Retry-After is computed.
MEAN_WEIGHT = 0.2
SHUTTING_DOWN = "The service is shutting down."


class Abandoned(Exception):
    """Nobody waits for this work any more. Ends it between two steps; no client ever sees it."""


class Turn:
    """One admitted piece of work, as it sees itself from its thread."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self.submitted = time.monotonic()
        self.queue_seconds = 0.0
        self.last_beat = self.submitted
        self._abandoned = threading.Event()

    def check(self) -> None:
        """To be called between steps. Raises DeadlineExceeded when the time is up, Abandoned when nobody waits."""
        self.last_beat = time.monotonic()
        if self._abandoned.is_set():
            raise Abandoned
        if self.seconds_left() <= 0:
            raise DeadlineExceeded(timeout_s=self.timeout_s)

    def abandon(self) -> None:
        self._abandoned.set()

    def seconds(self) -> float:
        """Since the question was admitted."""
        return time.monotonic() - self.submitted

    def seconds_left(self) -> float:
        return self.timeout_s - self.seconds()


class WorkPool:
    """`workers` threads of our own and `max_queue` places to wait. Not shared with anything else in the process."""

    def __init__(self, workers: int, max_queue: int) -> None:
        self._workers = workers
        self._slots = workers + max_queue
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="question")
        self._lock = threading.Lock()
        self._admitted = 0
        self._running: set[Turn] = set()
        self._mean_seconds = 1.0
        self._closing = False

    async def run(self, work: Callable[[Turn], T], *, timeout_s: float) -> T:
        """Do `work` in a thread, or raise: Overloaded at once when no slot is free, DeadlineExceeded in time."""
        turn = Turn(timeout_s)
        future = self._submit(work, turn)
        waiting = asyncio.wrap_future(future)
        try:
            await asyncio.wait({waiting}, timeout=turn.seconds_left())
            if not waiting.done():
                raise DeadlineExceeded(timeout_s=timeout_s)
        finally:
            if not waiting.done():
                turn.abandon()
                # ends what has not begun; what has, finds that it is abandoned at its next step
                future.cancel()
                waiting.cancel()
        try:
            return waiting.result()
        except (Abandoned, asyncio.CancelledError):
            # not by the client, who is still here: `stop` ended it
            raise NoLiveIndex(hint=SHUTTING_DOWN) from None

    def waiting(self) -> int:
        """Questions that have a slot and no thread yet."""
        with self._lock:
            return self._admitted - len(self._running)

    def running(self) -> int:
        with self._lock:
            return len(self._running)

    async def responds(self, *, within_s: float) -> bool:
        """Whether work gets done: a thread picks up a no-op in time, or all are busy and getting on."""
        with self._lock:
            busy = len(self._running) >= self._workers
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
            beats = [turn.last_beat for turn in self._running]
        return len(beats) >= self._workers and now - max(beats) < STALLED_AFTER_S

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
            left = list(self._running)
        self._executor.shutdown(wait=False, cancel_futures=True)
        for turn in left:
            turn.abandon()

    async def _drained(self, within_s: float) -> bool:
        until = time.monotonic() + within_s
        while True:
            with self._lock:
                if not self._admitted:
                    return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(0.02)

    def _submit(self, work: Callable[[Turn], T], turn: Turn) -> Future[T]:
        with self._lock:
            if self._closing:
                raise NoLiveIndex(hint=SHUTTING_DOWN)
            if self._admitted >= self._slots:
                raise Overloaded(slots=self._slots, retry_after_s=self._retry_after_s())
            self._admitted += 1
        try:
            future = self._executor.submit(self._work, work, turn)
        except BaseException:
            self._leave()
            raise
        # added before anyone can wait on the future, so that the slot is free when the waiter wakes
        future.add_done_callback(lambda _: self._leave())
        return future

    def _work(self, work: Callable[[Turn], T], turn: Turn) -> T:
        turn.queue_seconds = turn.seconds()
        started = time.monotonic()
        with self._lock:
            self._running.add(turn)
        try:
            turn.check()
            return work(turn)
        finally:
            with self._lock:
                self._running.discard(turn)
                self._mean_seconds += MEAN_WEIGHT * (time.monotonic() - started - self._mean_seconds)

    def _leave(self) -> None:
        with self._lock:
            self._admitted -= 1

    def _retry_after_s(self) -> int:
        """Whole seconds until, at the present pace, one of the slots should be free."""
        return max(1, math.ceil(self._mean_seconds / self._workers))


def _nothing() -> None:
    """Asks of a thread only that it is there."""
