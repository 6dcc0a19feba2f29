"""An answer told while it is made: in order, from one version, with its place and its lease given back."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from openbook.application.admission import WorkPool
from openbook.application.answer_question import AnswerQuestion, Ask
from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import Answer, AnswerOptions, AnswerToken, Retrieval
from openbook.errors import InvalidRequest
from openbook.rag import decoding
from openbook.rag.engine import RagEngine
from openbook.storage.index_store import IndexStore
from tests.fixtures.stepping import Stepping
from tests.openbook.application.conftest import samples
from tests.openbook.application.test_answer_together import LONG, QUESTIONS, Crowd
from tests.waiting import PATIENCE_S, until

GREEDY = AnswerOptions(max_new_tokens=6)
Events = list[Retrieval | AnswerToken | Answer]
Stream = AsyncGenerator[Retrieval | AnswerToken | Answer]


async def heard(stream: Stream) -> Events:
    return [event async for event in stream]


def assert_whole(events: Events, *, passages: int = 1) -> Answer:
    """The passages, each token of the answer, and the answer, all of one version."""
    *told, answer = events
    assert isinstance(answer, Answer)
    found = [event for event in told[:passages] if isinstance(event, Retrieval)]
    assert len(found) == passages
    assert tuple(told[passages:]) == answer.tokens
    assert [one.passage for one in found[-1].passages] == [one.passage for one in answer.passages]
    assert found[-1].source.index == answer.source.index
    return answer


@pytest.fixture
def crowd(engine: RagEngine, live: LiveIndex, store: IndexStore) -> Crowd:
    return Crowd(engine, live, store)


def test_a_stream_tells_passages_then_tokens_then_the_answer(
    answer_question: AnswerQuestion, telemetry: Telemetry, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = asyncio.run(answer_question.answer(Ask(QUESTIONS[0], GREEDY, LONG)))
    stepping = Stepping(monkeypatch)

    async def main() -> Events:
        stream = answer_question.stream(Ask(QUESTIONS[0], GREEDY, LONG))
        events: Events = [await anext(stream)]
        for step in range(len(expected.tokens)):
            assert stepping.steps == step
            assert sum(one.leases for one in live.residents()) == 1
            stepping.go_on(1)
            events.append(await anext(stream))
        return [*events, *await heard(stream)]

    answer = assert_whole(asyncio.run(main()))
    assert answer.answers == expected.answers
    assert [token.text for token in answer.tokens] == [token.text for token in expected.tokens]
    until(lambda: not sum(one.leases for one in live.residents()))
    told = samples(telemetry)
    assert (told["openbook_answer_log_prob_count"], told["openbook_first_token_seconds_count"]) == (2, 1)


def test_streams_and_answers_are_computed_together_and_each_hears_its_own(crowd: Crowd) -> None:
    streams = [heard(crowd.ask.stream(Ask(text, GREEDY, LONG))) for text in QUESTIONS]
    *events, plain = crowd.gather(*streams, crowd.ask.answer(Ask(QUESTIONS[0], GREEDY, LONG)))
    assert crowd.n_batches() == 1
    assert isinstance(plain, Answer)
    for one, text in zip(events, QUESTIONS, strict=True):
        assert isinstance(one, list)
        answer = assert_whole(one)
        alone = asyncio.run(Crowd(crowd.engine, crowd.live, crowd.store).ask.answer(Ask(text, GREEDY, LONG)))
        assert answer.answers[0].text == alone.answers[0].text
    assert events[0][-1].answers == plain.answers  # type: ignore[index]


def test_closing_a_stream_frees_its_place_and_its_lease_at_the_next_step(
    answer_question: AnswerQuestion, pool: WorkPool, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepping = Stepping(monkeypatch)

    async def main() -> None:
        async with aclosing(answer_question.stream(Ask(QUESTIONS[0], GREEDY, LONG))) as stream:
            assert isinstance(await anext(stream), Retrieval)
            stepping.go_on(2)
            assert isinstance(await anext(stream), AnswerToken)
            assert isinstance(await anext(stream), AnswerToken)
            assert pool.running() == 1
            began = time.monotonic()
        # it does not wait for the step that is being computed
        assert time.monotonic() - began < PATIENCE_S
        stepping.go_on(1)

    asyncio.run(main())
    until(lambda: pool.running() == 0)
    until(lambda: sum(one.leases for one in live.residents()) == 0)
    assert stepping.steps <= 3


def test_a_stream_that_hangs_up_leaves_its_neighbours_theirs(crowd: Crowd) -> None:
    async def one_token(stream: Stream) -> AnswerToken | None:
        async with aclosing(stream):
            async for event in stream:
                if isinstance(event, AnswerToken):
                    return event
        return None

    first, *others = [crowd.ask.stream(Ask(text, GREEDY, LONG)) for text in QUESTIONS]
    token, *events = crowd.gather(one_token(first), *(heard(one) for one in others))
    assert isinstance(token, AnswerToken)
    for one in events:
        assert isinstance(one, list)
        assert_whole(one)


def test_a_neighbour_that_cannot_be_asked_costs_a_stream_no_event(crowd: Crowd) -> None:
    """The batch fails before a token is told, and each question is computed again alone, with its passages."""
    texts = (QUESTIONS[0], "long " * 400, QUESTIONS[1])
    ends = crowd.gather(*(heard(crowd.ask.stream(Ask(text, GREEDY, LONG))) for text in texts))
    assert isinstance(ends[1], InvalidRequest)
    for one in (ends[0], ends[2]):
        assert isinstance(one, list)
        assert_whole(one, passages=2)


def test_no_token_is_told_twice_where_a_batch_fails(
    crowd: Crowd, engine: RagEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The streams of the batch end with the error; an answer of which nothing was told is computed again."""
    best, calls = decoding.best_continuations, 0

    def break_once(*given: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise MemoryError
        return best(*given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(decoding, "best_continuations", break_once)
    told: Events = []

    async def hear(stream: Stream) -> None:
        async for event in stream:
            told.append(event)

    asked = crowd.ask.answer(Ask(QUESTIONS[1], GREEDY, LONG))
    end, answer = crowd.gather(hear(crowd.ask.stream(Ask(QUESTIONS[0], GREEDY, LONG))), asked)
    assert isinstance(end, MemoryError)
    assert [type(event) for event in told] == [Retrieval, AnswerToken, AnswerToken]
    assert isinstance(answer, Answer)


def test_a_swap_under_a_stream_changes_nothing_of_it(
    answer_question: AnswerQuestion, swap_index: SwapIndex, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepping = Stepping(monkeypatch)

    async def main() -> tuple[Events, Events]:
        stream = answer_question.stream(Ask(QUESTIONS[0], GREEDY, LONG))
        before: Events = [await anext(stream)]
        await asyncio.wrap_future(swap_index.begin("tiny-2018"))
        assert {one.index.version: one.leases for one in live.residents()} == {"tiny-2016": 1, "tiny-2018": 0}
        stepping.go_on()
        before += await heard(stream)
        return before, await heard(answer_question.stream(Ask(QUESTIONS[0], GREEDY, LONG)))

    before, after = asyncio.run(main())
    assert assert_whole(before).source.index.version == "tiny-2016"
    assert assert_whole(after).source.index.version == "tiny-2018"
    until(lambda: [one.index.version for one in live.residents()] == ["tiny-2018"])
