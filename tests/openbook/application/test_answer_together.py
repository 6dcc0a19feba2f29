"""Questions that meet in the queue: computed together where they ask for the same, and answered as each alone."""

import asyncio
import random
import threading
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from openbook.application.admission import WorkPool
from openbook.application.answer_question import AnswerQuestion, Ask
from openbook.application.live_index import LiveIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import Answer, AnswerOptions, Retrieval
from openbook.errors import InvalidRequest
from openbook.rag.engine import RagEngine
from openbook.storage.index_store import IndexStore
from tests.openbook.application.conftest import samples
from tests.waiting import HELD_S, PATIENCE_S, reached

LONG = 3600.0
FOUR = AnswerOptions(n_docs=4)
QUESTIONS = ("who is the president of peru ?", "the long river", "gdp of ghana ?", "who is king ?", "what language ?")
OPTIONS = (
    AnswerOptions(max_new_tokens=6),
    AnswerOptions(max_new_tokens=6, num_answers=3),
    # RAG-Token does not read `decoding`, which keeps no two questions apart
    AnswerOptions(max_new_tokens=6, decoding="fast"),
    AnswerOptions(max_new_tokens=6, num_beams=1),
    AnswerOptions(n_docs=3, model="sequence", num_beams=2, max_new_tokens=4),
    AnswerOptions(n_docs=3, model="sequence", num_beams=2, max_new_tokens=4, decoding="fast"),
)


class Crowd:
    """A service with one thread, which is kept busy until all questions of a test wait."""

    def __init__(self, engine: RagEngine, live: LiveIndex, store: IndexStore, *, max_batch: int = 8) -> None:
        self.engine, self.live, self.store = engine, live, store
        self.telemetry = Telemetry()
        self.pool = WorkPool(1, 100, observe=self.telemetry.observe_batch)
        self.ask = AnswerQuestion(engine, live, store, self.pool, self.telemetry, max_batch=max_batch)

    def gather(self, *asked: Coroutine[Any, Any, object]) -> list[object]:
        """What each question came to, all of which wait when the first is taken up."""
        return asyncio.run(self._gather(asked))

    async def _gather(self, asked: Sequence[Coroutine[Any, Any, object]]) -> list[object]:
        go_on = threading.Event()
        busy = asyncio.ensure_future(self.pool.run(lambda batch: [go_on.wait(HELD_S)], None, timeout_s=LONG))
        await reached(self.pool.running)
        tasks = [asyncio.ensure_future(one) for one in asked]
        await reached(lambda: self.pool.waiting() >= len(tasks))
        go_on.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        await busy
        await self.pool.close(within_s=PATIENCE_S)
        return found

    def n_batches(self) -> int:
        """Without the one that kept the thread busy."""
        return int(samples(self.telemetry)["openbook_batch_size_count"]) - 1


@pytest.fixture
def crowd(engine: RagEngine, live: LiveIndex, store: IndexStore) -> Crowd:
    return Crowd(engine, live, store)


def assert_same(found: object, alone: Answer) -> None:
    assert isinstance(found, Answer)
    assert [one.text for one in found.answers] == [one.text for one in alone.answers]
    assert [one.log_prob for one in found.answers] == pytest.approx([one.log_prob for one in alone.answers], abs=1e-4)
    assert [one.passage for one in found.passages] == [one.passage for one in alone.passages]
    assert (found.model, replace(found.source, seconds=alone.source.seconds)) == (alone.model, alone.source)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_random_mixture_is_answered_as_each_question_alone(
    crowd: Crowd, answer_question: AnswerQuestion, seed: int
) -> None:
    draw = random.Random(seed)
    mixture = [(draw.choice(QUESTIONS), draw.choice(OPTIONS)) for _ in range(12)]
    answers = crowd.gather(*(crowd.ask.answer(Ask(text, options, LONG)) for text, options in mixture))
    for found, (text, options) in zip(answers, mixture, strict=True):
        assert_same(found, asyncio.run(answer_question.answer(Ask(text, options, LONG))))
    assert crowd.n_batches() <= 4


def test_questions_are_computed_together_under_one_lease_up_to_the_setting(
    engine: RagEngine, live: LiveIndex, store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases: list[tuple[int, int]] = []
    engine_answer = RagEngine.answer

    def counted(self: RagEngine, questions: list[str], *given: object, **named: object) -> object:
        leases.append((len(questions), sum(one.leases for one in live.residents())))
        return engine_answer(self, questions, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(RagEngine, "answer", counted)
    crowd = Crowd(engine, live, store, max_batch=3)
    found = crowd.gather(*(crowd.ask.answer(Ask(text, OPTIONS[0], LONG)) for text in QUESTIONS))
    assert leases == [(3, 1), (2, 1)]
    assert [answer.source.index.version for answer in found if isinstance(answer, Answer)] == ["tiny-2016"] * 5
    assert sum(one.leases for one in live.residents()) == 0


@pytest.mark.parametrize("residents", [2])
def test_questions_of_two_versions_are_not_computed_together(crowd: Crowd) -> None:
    crowd.live.add_resident(crowd.store.open("tiny-2018"))
    versions = ["tiny-2016", "tiny-2018", "tiny-2016"]
    found = crowd.gather(*(crowd.ask.answer(Ask(QUESTIONS[0], OPTIONS[0], LONG, one)) for one in versions))
    assert [answer.source.index.version for answer in found if isinstance(answer, Answer)] == versions
    assert crowd.n_batches() == 2


def test_large_questions_go_fewer_together(crowd: Crowd) -> None:
    large = AnswerOptions(n_docs=10, num_beams=8, max_new_tokens=2)
    found = crowd.gather(*(crowd.ask.answer(Ask(text, large, LONG)) for text in QUESTIONS[:4]))
    assert all(isinstance(answer, Answer) for answer in found)
    assert crowd.n_batches() == 2


def test_a_question_that_fails_leaves_its_neighbours_answered(crowd: Crowd, answer_question: AnswerQuestion) -> None:
    texts = (QUESTIONS[0], "long " * 400, *QUESTIONS[1:])
    ends = crowd.gather(*(crowd.ask.answer(Ask(text, OPTIONS[0], LONG)) for text in texts))
    assert isinstance(ends[1], InvalidRequest)
    for found, text in ((ends[0], texts[0]), (ends[2], texts[2])):
        assert_same(found, asyncio.run(answer_question.answer(Ask(text, OPTIONS[0], LONG))))
    # each is counted once, however it ends
    told = samples(crowd.telemetry)
    # one more kept the thread busy
    assert told["openbook_batch_size_sum"] == told["openbook_queue_wait_seconds_count"] == len(texts) + 1
    assert told['openbook_stage_seconds_count{stage="total"}'] == len(QUESTIONS)
    assert told["openbook_answer_log_prob_count"] == len(QUESTIONS)


def test_passages_are_found_together_too(crowd: Crowd, engine: RagEngine, live: LiveIndex) -> None:
    asked = [crowd.ask.retrieve(Ask(text, FOUR, LONG)) for text in QUESTIONS]
    *found, too_many = crowd.gather(*asked, crowd.ask.retrieve(Ask(QUESTIONS[0], AnswerOptions(n_docs=13), LONG)))
    assert isinstance(too_many, InvalidRequest)
    for one, text in zip(found, QUESTIONS, strict=True):
        assert isinstance(one, Retrieval)
        with live.lease() as lease:
            (alone,) = engine.retrieve([text], lease.snapshot, FOUR)
        assert [passage.passage for passage in one.passages] == [passage.passage for passage in alone.passages]
    assert crowd.n_batches() == 2


def test_questions_that_search_otherwise_are_not_searched_together(crowd: Crowd) -> None:
    """The live index is flat and refuses `nprobe`, which only fails the question that asks for it."""
    asked = [AnswerOptions(max_new_tokens=2, search=search) for search in ((), (("nprobe", 1),), ())]
    found = crowd.gather(
        *(crowd.ask.retrieve(Ask(QUESTIONS[0], options, LONG)) for options in asked),
        *(crowd.ask.answer(Ask(QUESTIONS[0], options, LONG)) for options in asked),
    )
    kinds = [Retrieval, InvalidRequest, Retrieval, Answer, InvalidRequest, Answer]
    assert [type(one) for one in found] == kinds
    assert crowd.n_batches() == 4
