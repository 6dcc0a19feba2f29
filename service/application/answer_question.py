"""A question's path: a slot, a lease on the live snapshot, the engine, an answer that names its version."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from service.application.admission import WorkPool
from service.application.comparison import Comparison
from service.application.live_index import Lease, LiveIndex
from service.application.telemetry import Telemetry
from service.application.turn import Turn
from service.entities import (
    Answer,
    AnswerOptions,
    AnswerPassage,
    IndexVersion,
    ModelKind,
    StageSeconds,
    TargetScore,
)
from service.errors import IndexNotResident
from service.rag.engine import RagEngine
from service.storage.index_store import IndexStore

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scores:
    """log p(target | question) of each target, in the order given."""

    targets: tuple[TargetScore, ...]
    passages: tuple[AnswerPassage, ...]
    model: ModelKind
    index: IndexVersion
    checkpoint: str
    seconds: StageSeconds


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Passages with doc_scores and prior; the posterior is the prior, since nothing was generated."""

    passages: tuple[AnswerPassage, ...]
    index: IndexVersion
    checkpoint: str
    seconds: StageSeconds


class AnswerQuestion:
    """Answers, scores and retrieves, each in a thread of the pool and under one lease from search to provenance.

    Every call raises Overloaded at once when no slot is free and DeadlineExceeded when `timeout_s` has passed; with
    `index` the answer comes from that version, or IndexNotResident or UnknownIndex is raised.
    """

    def __init__(
        self, engine: RagEngine, live: LiveIndex, store: IndexStore, pool: WorkPool, telemetry: Telemetry
    ) -> None:
        self._engine = engine
        self._live = live
        self._store = store
        self._pool = pool
        self._telemetry = telemetry

    async def answer(
        self, question: str, options: AnswerOptions, *, timeout_s: float, index: str | None = None
    ) -> Answer:
        def work(lease: Lease, turn: Turn) -> Answer:
            return self._answer(question, options, lease, turn)

        answer = await self._run(work, timeout_s, index)
        self._telemetry.observe_stages(answer.seconds)
        self._telemetry.observe_answer(answer)
        return answer

    async def score(
        self,
        question: str,
        targets: Sequence[str],
        *,
        n_docs: int,
        model: ModelKind,
        timeout_s: float,
        index: str | None = None,
    ) -> Scores:
        def work(lease: Lease, turn: Turn) -> Scores:
            found = self._engine.score(
                question, targets, lease.snapshot, n_docs=n_docs, model=model, between_steps=turn.check
            )
            return Scores(
                targets=found.targets,
                passages=found.passages,
                model=model,
                index=lease.index,
                checkpoint=self._engine.checkpoint_name,
                seconds=_complete(found.seconds, turn),
            )

        scores = await self._run(work, timeout_s, index)
        self._telemetry.observe_stages(scores.seconds)
        return scores

    async def retrieve(self, question: str, *, n_docs: int, timeout_s: float, index: str | None = None) -> Retrieval:
        def work(lease: Lease, turn: Turn) -> Retrieval:
            found = self._engine.retrieve(question, lease.snapshot, n_docs)
            return Retrieval(
                passages=found.passages,
                index=lease.index,
                checkpoint=self._engine.checkpoint_name,
                seconds=_complete(found.seconds, turn),
            )

        retrieval = await self._run(work, timeout_s, index)
        self._telemetry.observe_stages(retrieval.seconds)
        return retrieval

    async def compare(
        self, question: str, options: AnswerOptions, versions: Sequence[str], *, timeout_s: float
    ) -> Comparison:
        """The answer of each of `versions`, in one slot and under leases that are taken at one moment.

        Each may take `timeout_s`, as it may when it is asked for alone.
        """
        for version in versions:
            await self._check(version)

        def work(turn: Turn) -> tuple[Answer, ...]:
            with self._live.leases(versions) as leases:
                return tuple(self._answer(question, options, lease, turn) for lease in leases)

        answers = await self._pool.run(work, timeout_s=timeout_s * len(versions))
        for answer in answers:
            self._telemetry.observe_stages(answer.seconds)
            self._telemetry.observe_answer(answer)
        return Comparison.of(answers)

    def _answer(self, question: str, options: AnswerOptions, lease: Lease, turn: Turn) -> Answer:
        begun = turn.seconds()
        found = self._engine.answer(question, lease.snapshot, options, between_steps=turn.check)
        return Answer(
            answers=found.answers,
            tokens=found.tokens,
            passages=found.passages,
            model=options.model,
            posterior_kind=found.posterior_kind,
            no_answer=found.no_answer,
            index=lease.index,
            checkpoint=self._engine.checkpoint_name,
            seconds=replace(found.seconds, queue=turn.queue_seconds, total=turn.queue_seconds + turn.seconds() - begun),
        )

    async def _run(self, work: Callable[[Lease, Turn], T], timeout_s: float, index: str | None) -> T:
        await self._check(index)

        def under_lease(turn: Turn) -> T:
            # The lease is taken and given back in this thread: a client that hangs up cannot let go of an index
            # that is being searched, and a question that waits does not hold the old index open.
            with self._live.lease(index) as lease:
                return work(lease, turn)

        return await self._pool.run(under_lease, timeout_s=timeout_s)

    async def _check(self, version: str | None) -> None:
        """Refuse now what would be refused after a wait in the queue."""
        try:
            self._live.check(version)
        except IndexNotResident as error:
            # raises UnknownIndex for a version that is not only not loaded, but nowhere
            await asyncio.to_thread(self._store.info, error.data["version"])
            raise


def _complete(seconds: StageSeconds, turn: Turn) -> StageSeconds:
    return replace(seconds, queue=turn.queue_seconds, total=turn.seconds())
