"""A question's path: a place, a lease on the live snapshot, the engine, an answer that names its version.

Questions that wait together for an answer or for passages are computed together where they ask for the same: the
version, and every option that decides what is computed. They share one lease, and so one version.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from openbook.application.admission import WorkPool
from openbook.application.batching import Batch, Together
from openbook.application.comparison import Comparison
from openbook.application.live_index import Lease, LiveIndex
from openbook.application.telemetry import Telemetry
from openbook.application.turn import Turn
from openbook.entities import (
    Answer,
    AnswerOptions,
    AnswerPassage,
    IndexVersion,
    ModelKind,
    RetrieverKind,
    SearchChanges,
    StageSeconds,
    TargetScore,
)
from openbook.errors import IndexNotResident
from openbook.rag.engine import RagEngine
from openbook.rag.engine_results import EngineAnswer
from openbook.storage.index_store import IndexStore

Q = TypeVar("Q")
T = TypeVar("T")

USUAL = AnswerOptions()


@dataclass(frozen=True, slots=True)
class Scores:
    """log p(target | question) of each target, in the order given."""

    targets: tuple[TargetScore, ...]
    passages: tuple[AnswerPassage, ...]
    model: ModelKind
    index: IndexVersion
    checkpoint: str
    seconds: StageSeconds
    retriever: RetrieverKind = "dense"
    search: SearchChanges = ()
    attribution: str = ""


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Passages with doc_scores and prior; the posterior is the prior, since nothing was generated."""

    passages: tuple[AnswerPassage, ...]
    index: IndexVersion
    checkpoint: str
    seconds: StageSeconds
    retriever: RetrieverKind = "dense"
    search: SearchChanges = ()
    attribution: str = ""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What questions of one batch may differ in."""

    question: str
    num_answers: int


class AnswerQuestion:
    """Answers, scores and retrieves, each in a thread of the pool and under one lease from search to provenance.

    Every call raises Overloaded at once when no place is free and DeadlineExceeded when `timeout_s` has passed; with
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
        # how many of the hypotheses are shown, and what RAG-Token does not read, decide nothing that is computed
        shared = replace(
            options, num_answers=1, decoding=USUAL.decoding if options.model == "token" else options.decoding
        )

        def compute(batch: Batch[_Asked]) -> list[Answer]:
            questions = [asked.question for asked in batch.questions]
            most_answers = replace(shared, num_answers=max(asked.num_answers for asked in batch.questions))
            with self._live.lease(index) as lease:
                found = self._engine.answer_together(questions, lease.snapshot, most_answers, between_steps=batch.check)
            return [
                self._complete_answer(replace(one, answers=one.answers[: asked.num_answers]), shared, lease, turn)
                for one, asked, turn in zip(found, batch.questions, batch.turns, strict=True)
            ]

        together = Together(("answer", index, shared), compute, most=self._most(options))
        answer = await self._join(_Asked(question, options.num_answers), together, timeout_s, index)
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
        retriever: RetrieverKind = "dense",
        search: SearchChanges = (),
    ) -> Scores:
        def work(batch: Batch[None]) -> list[Scores]:
            (turn,) = batch.turns
            with self._live.lease(index) as lease:
                found = self._engine.score(
                    question,
                    targets,
                    lease.snapshot,
                    n_docs=n_docs,
                    model=model,
                    retriever=retriever,
                    search=search,
                    between_steps=turn.check,
                )
            return [
                Scores(
                    targets=found.targets,
                    passages=found.passages,
                    model=model,
                    index=lease.index,
                    checkpoint=self._engine.checkpoint_name,
                    seconds=_complete(found.seconds, turn),
                    retriever=retriever,
                    search=search,
                    attribution=lease.snapshot.info.attribution,
                )
            ]

        scores = await self._join(None, Together(object(), work), timeout_s, index)
        self._telemetry.observe_stages(scores.seconds)
        return scores

    async def retrieve(
        self,
        question: str,
        *,
        n_docs: int,
        timeout_s: float,
        index: str | None = None,
        retriever: RetrieverKind = "dense",
        search: SearchChanges = (),
    ) -> Retrieval:
        def compute(batch: Batch[str]) -> list[Retrieval]:
            with self._live.lease(index) as lease:
                found = self._engine.retrieve_together(
                    batch.questions, lease.snapshot, n_docs, retriever=retriever, search=search
                )
            return [
                Retrieval(
                    passages=one.passages,
                    index=lease.index,
                    checkpoint=self._engine.checkpoint_name,
                    seconds=_complete(one.seconds, turn),
                    retriever=retriever,
                    search=search,
                    attribution=lease.snapshot.info.attribution,
                )
                for one, turn in zip(found, batch.turns, strict=True)
            ]

        together = Together(("retrieve", index, n_docs, retriever, search), compute, most=self._max_batch)
        retrieval = await self._join(question, together, timeout_s, index)
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
        answer = self._complete_answer(found, options, lease, turn)
        return replace(answer, seconds=replace(answer.seconds, total=turn.queue_seconds + turn.seconds() - begun))

    def _complete_answer(self, found: EngineAnswer, options: AnswerOptions, lease: Lease, turn: Turn) -> Answer:
        return Answer(
            answers=found.answers,
            tokens=found.tokens,
            passages=found.passages,
            model=options.model,
            posterior_kind=found.posterior_kind,
            no_answer=found.no_answer,
            index=lease.index,
            checkpoint=self._engine.checkpoint_name,
            seconds=_complete(found.seconds, turn),
            retriever=options.retriever,
            search=options.search,
            attribution=lease.snapshot.info.attribution,
        )

    async def _join(self, question: Q, together: Together[Q, T], timeout_s: float, index: str | None) -> T:
        await self._check(index)
        # The lease is taken and given back in the thread that computes: a client that hangs up cannot let go of an
        # index that is being searched, and a question that waits does not hold the old index open.
        return await self._pool.join(question, together, timeout_s=timeout_s)

    def _most(self, options: AnswerOptions) -> int:
        """Questions of this size in a batch whose hypotheses take the memory of `max_batch` usual ones."""
        usual = USUAL.n_docs * USUAL.num_beams
        return max(1, min(self._max_batch, self._max_batch * usual // (options.n_docs * options.num_beams)))

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
