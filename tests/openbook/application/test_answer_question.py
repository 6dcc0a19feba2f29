import asyncio
import threading
from dataclasses import replace
from functools import partial

import pytest

from openbook.application.admission import WorkPool
from openbook.application.answer_question import AnswerQuestion, Ask
from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import AnswerOptions, IndexVersion
from openbook.errors import DeadlineExceeded, IndexNotResident
from openbook.rag.engine import RagEngine
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import tiny_passages
from tests.waiting import HELD_S, PATIENCE_S, reached

QUESTION = "who is the president of peru ?"
FOUR = AnswerOptions(n_docs=4)
TEXTS = {version: {passage.text for passage in tiny_passages(version)} for version in ("tiny-2016", "tiny-2018")}
LONG = 3600.0


@pytest.mark.parametrize("options", [AnswerOptions(), AnswerOptions(n_docs=3, model="sequence", num_answers=2)])
def test_an_answer_is_the_engines_with_its_version_and_its_times(
    answer_question: AnswerQuestion, engine: RagEngine, live: LiveIndex, options: AnswerOptions
) -> None:
    answer = asyncio.run(answer_question.answer(Ask(QUESTION, options, LONG)))
    with live.lease() as lease:
        (expected,) = engine.answer([QUESTION], lease.snapshot, options)
    assert replace(answer, source=expected.source) == expected
    assert answer.source.index == IndexVersion("tiny-2016", 0, "2016-12-21")
    assert answer.source.checkpoint == engine.facts.checkpoint
    parts = answer.source.seconds
    assert 0 < parts.queue + parts.encode + parts.retrieve + parts.generate <= parts.total


def test_the_deadline_of_a_pinned_question_covers_the_look_at_the_store(
    answer_question: AnswerQuestion, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    monkeypatch.setattr(IndexStore, "info", lambda self, version: go_on.wait(HELD_S))

    async def main() -> None:
        try:
            for ask in (
                answer_question.retrieve(Ask(QUESTION, FOUR, 0.05, index="tiny-2018")),
                answer_question.compare(Ask(QUESTION, FOUR, 0.05), ["tiny-2016", "tiny-2018"]),
            ):
                with pytest.raises(DeadlineExceeded):
                    await asyncio.wait_for(ask, PATIENCE_S)
        finally:
            go_on.set()

    asyncio.run(main())


def test_every_answer_during_swaps_is_wholly_from_the_version_that_it_names(
    engine: RagEngine, live: LiveIndex, store: IndexStore, swap_index: SwapIndex, telemetry: Telemetry
) -> None:
    pool = WorkPool(workers=3, max_queue=3)
    answer_question = AnswerQuestion(engine, live, store, pool, telemetry, max_batch=8)
    options = AnswerOptions(n_docs=12, num_beams=1, max_new_tokens=2)
    seen: dict[str, set[int]] = {"tiny-2016": set(), "tiny-2018": set()}

    async def client(swapping: asyncio.Task[None]) -> None:
        while not swapping.done():
            answer = await answer_question.answer(Ask(QUESTION, options, LONG))
            assert {passage.passage.text for passage in answer.passages} == TEXTS[answer.source.index.version]
            assert answer.source.index.generation % 2 == ("tiny-2016", "tiny-2018").index(answer.source.index.version)
            seen[answer.source.index.version].add(answer.source.index.generation)

    async def swaps() -> None:
        for swap in range(8):
            version = ("tiny-2018", "tiny-2016")[swap % 2]
            report = await asyncio.wrap_future(swap_index.begin(version))
            await reached(partial(seen[version].__contains__, report.generation))

    async def main() -> None:
        swapping = asyncio.ensure_future(swaps())
        await asyncio.gather(swapping, *(client(swapping) for _ in range(6)))
        assert await pool.close(within_s=PATIENCE_S)

    asyncio.run(main())
    assert seen["tiny-2016"] | seen["tiny-2018"] >= set(range(1, 9))
    assert [resident.index for resident in live.residents()] == [IndexVersion("tiny-2016", 8, "2016-12-21")]


def test_a_pinned_question_whose_version_is_replaced_while_it_waits_is_refused(
    answer_question: AnswerQuestion, live: LiveIndex, store: IndexStore, pool: WorkPool
) -> None:
    go_on = threading.Event()

    async def main() -> None:
        busy = [
            asyncio.ensure_future(pool.run(lambda batch: [go_on.wait(HELD_S)], None, timeout_s=LONG)) for _ in range(2)
        ]
        await reached(lambda: pool.running() == 2)
        pinned = asyncio.ensure_future(answer_question.answer(Ask(QUESTION, AnswerOptions(), LONG, index="tiny-2016")))
        await reached(pool.waiting)
        live.flip(store.open("tiny-2018"))
        go_on.set()
        with pytest.raises(IndexNotResident):
            await pinned
        await asyncio.gather(*busy)

    asyncio.run(main())
