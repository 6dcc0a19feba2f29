"""A question's path: a place, a lease on the live snapshot, the engine, an answer that names its version.

Questions that wait together are computed together where they ask for the same: the version, and every option that
decides what is computed. They share one lease, and so one version.

A question may be heard while it is computed. Its events leave the thread without waiting for anyone, so a client that
reads slowly does not hold up its batch.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from openbook.application.admission import WorkPool
from openbook.application.batching import Batch, Job
from openbook.application.comparison import Comparison
from openbook.application.following import completed
from openbook.application.live_index import Lease, LiveIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import (
    Answer,
    AnswerOptions,
    AnswerToken,
    EarlierTurn,
    IndexVersion,
    Passage,
    PassageInPlace,
    Retrieval,
    Scores,
)
from openbook.errors import DeadlineExceeded, IndexNotResident, NoLiveIndex, Overloaded, StoreUnreachable
from openbook.rag.engine import RagEngine
from openbook.rag.listening import Listener, Tell
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot

F = TypeVar("F", Answer, Scores, Retrieval)
T = TypeVar("T")

# The largest question of which `max_batch` are computed together.
USUAL = AnswerOptions(num_beams=4)


@dataclass(frozen=True, slots=True)
class Ask:
    """A question with its options: at most `timeout_s` seconds are spent on it.

    With `index` the answer comes from that version. The question is completed where it leans on `history`, the turns
    before it, of which the oldest is first. `tell` hears of the answer while it is made.
    """

    question: str
    options: AnswerOptions
    timeout_s: float
    index: str | None = None
    history: Sequence[EarlierTurn] = ()
    tell: Tell | None = None

    def completed(self) -> "Ask":
        """The same question as one that stands alone."""
        return replace(self, question=completed(self.question, self.history))


@dataclass(frozen=True, slots=True)
class FoundInPlace:
    """A passage within its document, the version that has it, and what must be shown with its text."""

    place: PassageInPlace
    index: IndexVersion
    attribution: str


Compute = Callable[[Batch[Ask], Lease, AnswerOptions], list[F]]


class AnswerQuestion:
    """Answers, scores and retrieves, each in a thread of the pool and under one lease from search to provenance.

    Every call raises Overloaded at once when no place is free, DeadlineExceeded when the time has passed, and
    IndexNotResident or UnknownIndex for a version that is not open. At most `max_batch` questions are computed
    together, and fewer where each asks for more passages and beams than is usual.
    """

    def __init__(
        self,
        engine: RagEngine,
        live: LiveIndex,
        store: IndexStore,
        pool: WorkPool,
        telemetry: Telemetry,
        *,
        max_batch: int,
    ) -> None:
        self._engine = engine
        self._live = live
        self._store = store
        self._pool = pool
        self._telemetry = telemetry
        self._max_batch = max_batch

    async def answer(self, ask: Ask) -> Answer:
        alone = ask.completed()
        return _understood(ask, alone, await self._answer(alone))

    async def answer_each(self, asks: Sequence[Ask], keep: Callable[[Answer], Awaitable[T]]) -> list[T | Exception]:
        """What `keep` makes of the answer to each, or the error that it ended with, in their order.

        Each counts its time from this call. No more answers than are computed at once are held: `keep` is called with
        each as soon as it is there, and before another question begins in its turn. What it raises is that question's
        end.

        The next ones wait in the queue while some are computed, but never in more than half of all places. Raises
        Overloaded or NoLiveIndex where the service takes none of them.
        """
        started = time.monotonic()
        turns = asyncio.Semaphore(max(1, min(2 * self._max_batch, self._pool.places // 2)))

        async def end_of(ask: Ask) -> T | Exception:
            try:
                async with turns:
                    seconds_left = ask.timeout_s - (time.monotonic() - started)
                    return await keep(await self.answer(replace(ask, timeout_s=seconds_left)))
            except DeadlineExceeded:
                return DeadlineExceeded(timeout_s=ask.timeout_s)
            except Exception as error:
                return error

        ends = await asyncio.gather(*map(end_of, asks))
        refusals = [end for end in ends if isinstance(end, Overloaded | NoLiveIndex)]
        if refusals and len(refusals) == len(ends):
            raise refusals[0]
        return ends

    async def stream(self, ask: Ask) -> AsyncGenerator[Retrieval | AnswerToken | Answer]:
        """What `answer` returns, told while it is made: the passages, the tokens as each is certain, then the answer.

        RAG-Token tells each of the answer's tokens, unless the answer is withheld; RAG-Sequence tells none. The answer
        is authoritative. All events come from one version. Before the first token, the passages may come again: they
        replace those before them. Raises what `answer` raises, whenever that happens. Closing the generator hangs up.
        """
        started = time.monotonic()
        loop = asyncio.get_running_loop()
        told: asyncio.Queue[Retrieval | AnswerToken | None] = asyncio.Queue()

        def tell(event: Retrieval | AnswerToken) -> None:
            # a loop that has closed has no listeners
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(told.put_nowait, event)

        alone = replace(ask.completed(), tell=tell)
        answering = asyncio.ensure_future(self._answer(alone))
        answering.add_done_callback(lambda _: told.put_nowait(None))
        speaking = False
        try:
            while (event := await told.get()) is not None:
                if isinstance(event, AnswerToken) and not speaking:
                    speaking = True
                    self._telemetry.observe_first_token(time.monotonic() - started)
                yield event
            yield _understood(ask, alone, answering.result())
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _answer(self, ask: Ask) -> Answer:
        options = ask.options
        # RAG-Token does not read `decoding`: it keeps no two questions apart
        alike = replace(options, decoding=USUAL.decoding) if options.model == "token" else options
        # so many questions of this size have hypotheses that take the memory of `max_batch` usual ones
        limit = self._max_batch * USUAL.n_docs * USUAL.num_beams // (options.n_docs * options.num_beams)
        # of those that leave passages out, each may have another number of them
        limit = max(1, min(self._max_batch, limit)) if not options.without else 1
        answer = await self._ask(self._compute_answers, replace(ask, options=alike), limit)
        answer = _withheld(replace(answer, answers=answer.answers[: options.num_answers]), options)
        self._telemetry.observe_answer(answer)
        return answer

    async def score(self, ask: Ask, targets: Sequence[str]) -> Scores:
        def compute(batch: Batch[Ask], lease: Lease, options: AnswerOptions) -> list[Scores]:
            return self._engine.score(_questions(batch), targets, lease.snapshot, options, batch.check)

        # alone: others have other targets
        return await self._ask(compute, ask, 1)

    async def retrieve(self, ask: Ask) -> Retrieval:
        return await self._ask(self._retrieve, ask, self._max_batch)

    async def relevance(self, question: str, passages: Sequence[Passage], *, timeout_s: float) -> list[float]:
        """How probably each of these passages, which need be in no version, answers the question."""

        def compute(batch: Batch[str]) -> list[list[float]]:
            return [self._engine.relevance(one, passages, batch.check) for one in batch.questions]

        return await self._pool.run(compute, question, timeout_s=timeout_s)

    async def embed(self, texts: Sequence[str], *, timeout_s: float) -> tuple[NDArray[np.float32], int]:
        """The vectors (n, d) of questions, of length 1, and the number of tokens that were read."""

        def compute(batch: Batch[Sequence[str]]) -> list[tuple[NDArray[np.float32], int]]:
            return [self._engine.embed(some, batch.check) for some in batch.questions]

        return await self._pool.run(compute, texts, timeout_s=timeout_s)

    async def in_place(self, version: str, passage_id: str, *, timeout_s: float) -> FoundInPlace:
        """A passage of an open version within its document. Raises UnknownPassage."""
        await self._check([version], timeout_s)

        def compute(batch: Batch[str]) -> list[FoundInPlace]:
            with self._live.lease(version) as lease:
                attribution = lease.snapshot.info.attribution
                return [FoundInPlace(lease.snapshot.in_place(one), lease.index, attribution) for one in batch.questions]

        return await self._pool.run(compute, passage_id, timeout_s=timeout_s)

    async def compare(self, ask: Ask, versions: Sequence[str]) -> Comparison:
        """The answer of each of `versions`, in one slot and under leases that are taken at one moment.

        All of them together may take the question's time.
        """
        await self._check(versions, ask.timeout_s)
        options = ask.options

        def compute(batch: Batch[str]) -> list[list[Answer]]:
            (job,) = batch.jobs
            answers = []
            with self._live.leases(versions) as leases:
                if options.filter is not None:
                    # no version answers where another one would refuse
                    for lease in leases:
                        lease.snapshot.allowed(options.filter)
                for lease in leases:
                    before = job.seconds() - job.queue_seconds
                    (answer,) = self._engine.answer(batch.questions, lease.snapshot, options, batch.check)
                    answers.append(_withheld(_complete(answer, lease, job, before), options))
            return [answers]

        alone = ask.completed()
        found = await self._pool.run(compute, alone.question, timeout_s=ask.timeout_s)
        answers = [_understood(ask, alone, answer) for answer in found]
        for answer in answers:
            self._telemetry.observe_stages(answer.source.seconds)
            self._telemetry.observe_answer(answer)
        return Comparison.of(ask.question, answers)

    def answer_last(self, ask: Ask, snapshot: IndexSnapshot | None) -> Answer:
        """The answer of `snapshot`, which need not be live, or of the live version, once no other question waits.

        Called from a thread; no thread reads `snapshot` any more when it returns or raises. No metric counts it.
        """

        def compute(batch: Batch[None]) -> Answer:
            with ExitStack() as held:
                if snapshot is None:
                    lease = held.enter_context(self._live.lease())
                else:
                    info = snapshot.info
                    lease = Lease(snapshot, IndexVersion(info.version, 0, info.snapshot_date))
                (answer,) = self._engine.answer([ask.question], lease.snapshot, ask.options, batch.check)
                return _withheld(_complete(answer, lease, batch.jobs[0]), ask.options)

        return self._pool.run_last(compute, timeout_s=ask.timeout_s)

    async def _ask(self, compute: Compute[F], ask: Ask, limit: int) -> F:
        await self._check([ask.index], ask.timeout_s)
        # which of the hypotheses are shown decides nothing that is computed
        alike = replace(ask.options, num_answers=1, max_no_answer=None)

        # The lease is taken and given back in the thread that computes: a client that hangs up cannot let go of an
        # index that is being searched, and a question that waits does not hold the old index open.
        def compute_batch(batch: Batch[Ask]) -> list[F]:
            most = replace(alike, num_answers=max(one.options.num_answers for one in batch.questions))
            with self._live.lease(ask.index) as lease:
                found = compute(batch, lease, most)
            return [_complete(one, lease, job) for one, job in zip(found, batch.jobs, strict=True)]

        key = (compute, ask.index, alike)
        found = await self._pool.run(compute_batch, ask, timeout_s=ask.timeout_s, key=key, limit=limit)
        self._telemetry.observe_stages(found.source.seconds)
        return found

    def _compute_answers(self, batch: Batch[Ask], lease: Lease, options: AnswerOptions) -> list[Answer]:
        listeners = {
            number: _listener(ask, ask.tell, lease, job)
            for number, (ask, job) in enumerate(zip(batch.questions, batch.jobs, strict=True))
            if ask.tell is not None
        }
        return self._engine.answer(_questions(batch), lease.snapshot, options, batch.check, listeners)

    def _retrieve(self, batch: Batch[Ask], lease: Lease, options: AnswerOptions) -> list[Retrieval]:
        return self._engine.retrieve(_questions(batch), lease.snapshot, options, batch.check)

    async def _check(self, versions: Sequence[str | None], timeout_s: float) -> None:
        """Refuse now what would be refused after a wait in the queue."""
        for version in versions:
            try:
                self._live.check(version)
            except IndexNotResident as error:
                try:
                    # raises UnknownIndex for a version that is not only not open, but nowhere
                    await asyncio.wait_for(asyncio.to_thread(self._store.info, error.data["version"]), timeout_s)
                except TimeoutError:
                    raise DeadlineExceeded(timeout_s=timeout_s) from None
                except StoreUnreachable:
                    # nobody knows more than that it is not open
                    raise error from None
                raise


def _questions(batch: Batch[Ask]) -> list[str]:
    return [ask.question for ask in batch.questions]


def _listener(ask: Ask, tell: Tell, lease: Lease, job: Job[Any, Any]) -> Listener:
    """Tells the client of `job` what the engine tells, completed."""

    def tell_completed(event: Retrieval | AnswerToken) -> None:
        if isinstance(event, Retrieval):
            tell(_complete(event, lease, job))
        else:
            job.heard = True
            tell(event)

    return Listener(tell_completed, ask.options.max_no_answer)


def _understood(ask: Ask, alone: Ask, answer: Answer) -> Answer:
    """The answer, which says how the question was completed."""
    return answer if alone.question == ask.question else replace(answer, understood_as=alone.question)


def _withheld(answer: Answer, options: AnswerOptions) -> Answer:
    """The answer, marked where `options` would rather have none; and so without each of its passages."""
    most = math.inf if options.max_no_answer is None else options.max_no_answer
    without = [replace(one, abstained=one.no_answer > most) for one in answer.leave_one_out or ()]
    return replace(
        answer,
        abstained=answer.no_answer > most,
        leave_one_out=None if answer.leave_one_out is None else tuple(without),
    )


def _complete(found: F, lease: Lease, job: Job[Any, Any], before: float = 0.0) -> F:
    """Add what the engine does not know; the job spent `before` seconds on other answers."""
    seconds = replace(found.source.seconds, queue=job.queue_seconds, total=job.seconds() - before)
    return replace(found, source=replace(found.source, index=lease.index, seconds=seconds))
