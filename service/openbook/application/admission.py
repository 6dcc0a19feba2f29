"""A bounded number of questions at a time: a place for each, or a refusal at once.

The place belongs to the work and not to the client that waits for it. A client that hangs up while its question waits
frees the place there and then; while the question is computed, the thread notices between two decoder steps, and frees
it then.
"""

import asyncio
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from openbook.application.batching import Abandoned, Batch, Job, compute_jobs, next_batch
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

    At the begin of each batch, in the thread that computes it, `observe` receives how long each of its questions
    waited, in seconds, and `share` how many threads compute now.
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
        self._executor = self._new_executor()
        self._lock = threading.Lock()
        self._jobs: dict[Future[Any], Job[Any, Any]] = {}  # in the order of their coming
        self._serving: set[object] = set()  # a ticket for each thread that computes, or is about to look for jobs
        self._computing: set[object] = set()  # the tickets of those that hold a batch
        self._mean_seconds = 1.0
        self._closing = False

    async def run(
        self,
        compute: Callable[[Batch[Q]], Sequence[T]],
        question: Q,
        *,
        timeout_s: float,
        key: Hashable = None,
        limit: int = 1,
    ) -> T:
        """Compute `question` in a thread, with jobs of the same key that wait there, and return its own result.

        Raises Overloaded at once when no place is free, DeadlineExceeded in time, and what computing it raised.
        """
        job = Job(question, compute, timeout_s, key, limit)
        self._admit(job)
        waiting = asyncio.wrap_future(job.future)
        try:
            await asyncio.wait({waiting}, timeout=job.seconds_left())
            if not waiting.done():
                raise DeadlineExceeded(timeout_s=timeout_s)
        finally:
            if not waiting.done():
                job.abandon()
                waiting.cancel()
        try:
            return waiting.result()
        except (Abandoned, asyncio.CancelledError):
            # the client is still here: `stop` ended the job
            raise NoLiveIndex(hint=SHUTTING_DOWN) from None

    def run_last(self, compute: Callable[[Batch[None]], T], *, timeout_s: float) -> T:
        """As `run`, from a thread of the caller, when no question waits; no place is taken. One such call at a time.

        Nothing is computed any more when it returns or raises.
        """
        job = Job(None, lambda batch: [compute(batch)], timeout_s, last=True)
        self._admit(job)
        wait((job.future,), timeout_s)
        # one that has begun ends at its next step, and this with it
        job.abandon()
        try:
            return job.future.result()
        except (Abandoned, CancelledError):
            if self._closing:
                raise NoLiveIndex(hint=SHUTTING_DOWN) from None
            raise DeadlineExceeded(timeout_s=timeout_s) from None

    @property
    def places(self) -> int:
        """Questions that an idle pool admits."""
        return self._workers + self._max_queue

    def waiting(self) -> int:
        """Questions that have a place and no thread yet."""
        with self._lock:
            return len(self._asked()) - self._n_begun()

    def running(self) -> int:
        """Questions that are being computed for a client."""
        with self._lock:
            return self._n_begun()

    async def responds(self, *, within_s: float) -> bool:
        """Whether work gets done: a thread picks up a no-op in time, or all are busy and getting on."""
        with self._lock:
            busy = len(self._serving) >= self._workers
            closing = self._closing
        if closing:
            return False
        if not busy:
            try:
                no_op = asyncio.wrap_future(self._submit(lambda: None))
            except RuntimeError:
                return False
            await asyncio.wait({no_op}, timeout=within_s)
            if no_op.done():
                return True
            no_op.cancel()
        now = time.monotonic()
        with self._lock:
            busy = len(self._serving) >= self._workers
            # a thread between two batches has no question to ask
            last = max((job.last_beat for job in self._jobs.values() if job.begun), default=now)
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
            left = list(self._jobs.values())
        self._executor.shutdown(wait=False, cancel_futures=True)
        for job in left:
            job.abandon()

    async def _drained(self, within_s: float) -> bool:
        until = time.monotonic() + within_s
        while True:
            with self._lock:
                if not self._jobs:
                    return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(0.02)

    def _admit(self, job: Job[Any, Any]) -> None:
        with self._lock:
            if self._closing:
                raise NoLiveIndex(hint=SHUTTING_DOWN)
            places = max(self._workers, self._n_begun()) + self._max_queue
            if not job.last and len(self._asked()) >= places:
                # whole seconds until, at the present pace, one of the places should be free
                retry_after_s = max(1, math.ceil(self._mean_seconds / self._workers))
                raise Overloaded(slots=places, retry_after_s=retry_after_s)
            if len(self._serving) < self._workers:
                ticket = object()
                self._submit(self._serve, ticket)
                self._serving.add(ticket)
            self._jobs[job.future] = job
        # added before anyone can wait on the future, so that the place is free when the client wakes
        job.future.add_done_callback(self._leave)

    def _new_executor(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self._workers, thread_name_prefix="question")

    def _submit(self, call: Callable[..., None], *given: object) -> Future[None]:
        """Raises RuntimeError where the system has no thread left."""
        try:
            return self._executor.submit(call, *given)
        except RuntimeError:
            # the executor keeps the call, and miscounts its idle threads from now on; its threads finish their work
            self._executor.shutdown(wait=False)
            self._executor = self._new_executor()
            raise

    def _serve(self, ticket: object) -> None:
        """Compute batches until no job waits. Whatever fails beside them ends their jobs, never the thread."""
        with self._lock:
            if ticket not in self._serving:
                # `_submit` failed, and its caller knows
                return
        while True:
            batch: list[Job[Any, Any]] = []
            started = time.monotonic()
            try:
                if not self._take(batch, ticket):
                    return
                if not batch[0].last:
                    self._observe([job.queue_seconds for job in batch])
                with self._lock:
                    self._computing.add(ticket)
                    computing = len(self._computing)
                self._share(computing)
                compute_jobs(batch)
            except BaseException as error:
                for job in batch:
                    job.fail(error)
            with self._lock:
                self._computing.discard(ticket)
                self._mean_seconds += MEAN_WEIGHT * (time.monotonic() - started - self._mean_seconds)

    def _take(self, batch: list[Job[Any, Any]], ticket: object) -> bool:
        """Fill `batch` with the next jobs; where none waits, return the ticket and False."""
        with self._lock:
            while taken := next_batch(self._waiting()):
                for job in taken:
                    batch.append(job)
                    job.begin()
                    # a client may have cancelled it at this moment
                    if not job.future.set_running_or_notify_cancel():
                        batch.remove(job)
                if batch:
                    return True
            self._serving.discard(ticket)
            return False

    def _leave(self, future: Future[Any]) -> None:
        with self._lock:
            self._jobs.pop(future, None)

    def _waiting(self) -> list[Job[Any, Any]]:
        """In the order in which they begin."""
        return sorted((job for job in self._jobs.values() if not job.begun), key=lambda job: job.last)

    def _asked(self) -> list[Job[Any, Any]]:
        return [job for job in self._jobs.values() if not job.last]

    def _n_begun(self) -> int:
        return sum(job.begun for job in self._asked())
