"""A question's path: a place, a lease on the live snapshot, the engine, an answer that names its version.

Questions that wait together are computed together where they ask for the same: the version, and every option that
decides what is computed. They share one lease, and so one version.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from openbook.application.admission import WorkPool
from openbook.application.batching import Batch, Job
from openbook.application.comparison import Comparison
from openbook.application.live_index import Lease, LiveIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import Answer, AnswerOptions, Retrieval, Scores
from openbook.errors import DeadlineExceeded, IndexNotResident
from openbook.rag.decoder import BetweenSteps
from openbook.rag.engine import RagEngine
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot

F = TypeVar("F", Answer, Scores, Retrieval)
Compute = Callable[[Sequence[str], IndexSnapshot, AnswerOptions, BetweenSteps], list[F]]

# The largest question of which `max_batch` are computed together.
USUAL = AnswerOptions(num_beams=4)


class AnswerQuestion:
    """Answers, scores and retrieves, each in a thread of the pool and under one lease from search to provenance.

    Every call raises Overloaded at once when no place is free and DeadlineExceeded when `timeout_s` has passed. With
    `index` the answer comes from that version, or IndexNotResident or UnknownIndex is raised. At most `max_batch`
    questions are computed together, and fewer where each asks for more passages and beams than is usual.
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

    async def answer(
        self, question: str, options: AnswerOptions, *, timeout_s: float, index: str | None = None
    ) -> Answer:
        # RAG-Token does not read `decoding`: it keeps no two questions apart
        alike = replace(options, decoding=USUAL.decoding) if options.model == "token" else options
        # so many questions of this size have hypotheses that take the memory of `max_batch` usual ones
        limit = self._max_batch * USUAL.n_docs * USUAL.num_beams // (options.n_docs * options.num_beams)
        limit = max(1, min(self._max_batch, limit))
        answer = await self._ask(self._engine.answer, question, alike, limit, timeout_s, index)
        answer = _withheld(replace(answer, answers=answer.answers[: options.num_answers]), options)
        self._telemetry.observe_answer(answer)
        return answer

    async def score(
        self,
        question: str,
        targets: Sequence[str],
        options: AnswerOptions,
        *,
        timeout_s: float,
        index: str | None = None,
    ) -> Scores:
        def compute(
            questions: Sequence[str], snapshot: IndexSnapshot, options: AnswerOptions, between_steps: BetweenSteps
        ) -> list[Scores]:
            return self._engine.score(questions, targets, snapshot, options, between_steps)

        # alone: others have other targets
        return await self._ask(compute, question, options, 1, timeout_s, index)

    async def retrieve(
        self, question: str, options: AnswerOptions, *, timeout_s: float, index: str | None = None
    ) -> Retrieval:
        return await self._ask(self._engine.retrieve, question, options, self._max_batch, timeout_s, index)

    async def compare(
        self, question: str, options: AnswerOptions, versions: Sequence[str], *, timeout_s: float
    ) -> Comparison:
        """The answer of each of `versions`, in one slot and under leases that are taken at one moment.

        Each may take `timeout_s`, as it may when it is asked for alone.
        """
        timeout_s *= len(versions)
        await self._check(versions, timeout_s)

        def compute(batch: Batch[str]) -> list[list[Answer]]:
            (job,) = batch.jobs
            answers = []
            with self._live.leases(versions) as leases:
                for lease in leases:
                    before = job.seconds() - job.queue_seconds
                    (answer,) = self._engine.answer(batch.questions, lease.snapshot, options, batch.check)
                    answers.append(_withheld(_complete(answer, lease, job, before), options))
            return [answers]

        answers = await self._pool.run(compute, question, timeout_s=timeout_s)
        for answer in answers:
            self._telemetry.observe_stages(answer.source.seconds)
            self._telemetry.observe_answer(answer)
        return Comparison.of(question, answers)

    async def _ask(
        self,
        compute: Compute[F],
        question: str,
        options: AnswerOptions,
        limit: int,
        timeout_s: float,
        index: str | None,
    ) -> F:
        await self._check([index], timeout_s)

        # The lease is taken and given back in the thread that computes: a client that hangs up cannot let go of an
        # index that is being searched, and a question that waits does not hold the old index open.
        def compute_batch(batch: Batch[tuple[str, int]]) -> list[F]:
            questions, num_answers = zip(*batch.questions, strict=True)
            most = replace(options, num_answers=max(num_answers))
            with self._live.lease(index) as lease:
                found = compute(questions, lease.snapshot, most, batch.check)
            return [_complete(one, lease, job) for one, job in zip(found, batch.jobs, strict=True)]

        # which of the hypotheses are shown decides nothing that is computed
        key = (compute, index, replace(options, num_answers=1, max_no_answer=None))
        found = await self._pool.run(
            compute_batch, (question, options.num_answers), timeout_s=timeout_s, key=key, limit=limit
        )
        self._telemetry.observe_stages(found.source.seconds)
        return found

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
                raise


def _withheld(answer: Answer, options: AnswerOptions) -> Answer:
    """The answer, marked where `options` would rather have none."""
    return replace(answer, abstained=options.max_no_answer is not None and answer.no_answer > options.max_no_answer)


def _complete(found: F, lease: Lease, job: Job[Any, Any], before: float = 0.0) -> F:
    """Add what the engine does not know; the job spent `before` seconds on other answers."""
    seconds = replace(found.source.seconds, queue=job.queue_seconds, total=job.seconds() - before)
    return replace(found, source=replace(found.source, index=lease.index, seconds=seconds))
