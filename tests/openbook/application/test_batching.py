import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from openbook.application.admission import WorkPool
from openbook.application.batching import Batch, Job
from openbook.errors import DeadlineExceeded, Overloaded
from tests.fixtures.clock import Clock
from tests.waiting import PATIENCE_S, reached

LONG = 3600.0


@dataclass
class Kitchen:
    """Computes batches in steps, each of which takes until the test lets it go, and keeps what it was given."""

    steps: int = 1
    _go: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    batches: list[tuple[str, ...]] = field(default_factory=list)
    jobs: list[Sequence[Job[str, str]]] = field(default_factory=list)
    whole: list[tuple[str, ...]] = field(default_factory=list)
    gone: list[tuple[int, ...]] = field(default_factory=list)

    def compute(self, batch: Batch[str]) -> list[str]:
        self.jobs.append(batch.jobs)
        self.batches.append(batch.questions)
        for _ in range(self.steps):
            assert self._go.acquire(timeout=PATIENCE_S)
            self.gone.append(batch.check())
        if "poison" in batch.questions:
            raise KeyError("poison")
        self.whole.append(batch.questions)
        return [question.upper() for question in batch.questions]

    def let_go(self, steps: int = 1000) -> None:
        self._go.release(steps)

    async def begins(self, *questions: str) -> None:
        await reached(lambda: self.batches and self.batches[-1] == questions)


@pytest.fixture
def pool() -> Iterator[WorkPool]:
    """One thread, six places to wait."""
    pool = WorkPool(workers=1, max_queue=6)
    yield pool
    pool.stop()


@pytest.fixture
def kitchen() -> Kitchen:
    return Kitchen()


Ask = Callable[..., "asyncio.Task[str]"]


def asking(pool: WorkPool, kitchen: Kitchen) -> Ask:
    def ask(question: str, *, key: str = "", limit: int = 8) -> "asyncio.Task[str]":
        return asyncio.ensure_future(pool.run(kitchen.compute, question, timeout_s=LONG, key=key, limit=limit))

    return ask


async def busy(pool: WorkPool, kitchen: Kitchen) -> tuple[Ask, "asyncio.Task[str]"]:
    """A way to ask, and the question "a", which the one thread has begun to compute."""
    ask = asking(pool, kitchen)
    first = ask("a")
    await kitchen.begins("a")
    return ask, first


async def queued(pool: WorkPool, questions: int) -> None:
    await reached(lambda: pool.waiting() == questions)


def test_a_lone_question_is_a_batch_of_one_at_once(pool: WorkPool, kitchen: Kitchen) -> None:
    kitchen.let_go()
    assert asyncio.run(pool.run(kitchen.compute, "a", timeout_s=LONG)) == "A"
    assert kitchen.batches == [("a",)]


@pytest.mark.parametrize(
    ("asked", "limit", "batches"),
    [
        pytest.param("b c d", 8, ["b c d"], id="what waits is computed together"),
        pytest.param("b c d e f", 2, ["b c", "d e", "f"], id="a batch has at most so many questions"),
        pytest.param("R b c S d", 8, ["R S", "b c d"], id="the oldest leads, whatever others ask for"),
    ],
)
def test_what_waits_when_the_thread_becomes_free_is_computed_together(
    pool: WorkPool, kitchen: Kitchen, asked: str, limit: int, batches: list[str]
) -> None:
    """Capital letters have another key."""

    async def main() -> list[str]:
        ask, first = await busy(pool, kitchen)
        waiting = [ask(one, limit=limit, key="rare" if one.isupper() else "") for one in asked.split()]
        await queued(pool, len(waiting))
        kitchen.let_go()
        return await asyncio.gather(first, *waiting)

    assert asyncio.run(main()) == ["A", *asked.upper().split()]
    assert kitchen.batches == [("a",), *(tuple(batch.split()) for batch in batches)]


def test_an_error_of_one_question_never_hits_its_neighbours(pool: WorkPool, kitchen: Kitchen) -> None:
    async def main() -> list[str | BaseException]:
        ask, first = await busy(pool, kitchen)
        waiting = [ask("b"), ask("poison"), ask("c")]
        await queued(pool, 3)
        kitchen.let_go()
        return await asyncio.gather(first, *waiting, return_exceptions=True)

    a, b, poison, c = asyncio.run(main())
    assert (a, b, c) == ("A", "B", "C")
    assert isinstance(poison, KeyError)
    assert (pool.running(), pool.waiting()) == (0, 0)


@pytest.mark.parametrize("leaves", ["hangs up", "is late"])
def test_a_job_that_leaves_frees_its_place_and_the_others_go_on(pool: WorkPool, kitchen: Kitchen, leaves: str) -> None:
    kitchen.steps = 3

    async def main() -> None:
        ask, first = await busy(pool, kitchen)
        stays, goes = ask("stays"), ask("goes")
        await queued(pool, 2)
        kitchen.let_go(4)
        await kitchen.begins("stays", "goes")
        await first
        assert pool.running() == 2
        if leaves == "hangs up":
            goes.cancel()
            await asyncio.sleep(0)
        else:
            kitchen.jobs[-1][1].timeout_s = 0.0
        # nothing is known of it before the step has ended
        assert pool.running() == 2
        kitchen.let_go(1)
        await reached(lambda: pool.running() == 1)
        with pytest.raises((asyncio.CancelledError, DeadlineExceeded)):
            await goes
        assert not stays.done()
        kitchen.let_go(1)
        assert await stays == "STAYS"

    asyncio.run(main())
    assert kitchen.whole == [("a",), ("stays", "goes")]
    # three steps of "a", and three of the batch: each step says which rows need no computing
    assert kitchen.gone == [(), (), (), (), (1,), (1,)]


def test_a_full_queue_refuses_at_once_also_while_a_batch_is_computed(kitchen: Kitchen) -> None:
    pool = WorkPool(workers=1, max_queue=2)

    async def main() -> None:
        ask, first = await busy(pool, kitchen)
        together = [ask("b"), ask("c")]
        await queued(pool, 2)
        with pytest.raises(Overloaded):
            await ask("too many")
        kitchen.let_go(1)
        await kitchen.begins("b", "c")
        # two are computed, and two may wait
        waiting = [ask("d"), ask("e")]
        await queued(pool, 2)
        with pytest.raises(Overloaded) as raised:
            await ask("too many")
        assert raised.value.data["slots"] == 4
        kitchen.let_go()
        assert await asyncio.gather(first, *together, *waiting) == ["A", "B", "C", "D", "E"]

    asyncio.run(main())
    pool.stop()


def test_results_that_are_too_few_are_an_error_and_end_the_wait(pool: WorkPool) -> None:
    with pytest.raises(ValueError, match="zip"):
        asyncio.run(pool.run(lambda batch: [], "a", timeout_s=LONG))
    assert pool.running() == 0


def test_each_batch_tells_how_long_its_questions_waited(kitchen: Kitchen, clock: Clock) -> None:
    told: list[list[float]] = []
    pool = WorkPool(workers=1, max_queue=6, observe=lambda waits: told.append(list(waits)))

    async def main() -> None:
        ask, first = await busy(pool, kitchen)
        waiting = [ask("b"), ask("c")]
        await queued(pool, 2)
        clock.forward(60)
        kitchen.let_go()
        await asyncio.gather(first, *waiting)

    asyncio.run(main())
    pool.stop()
    assert [len(waits) for waits in told] == [1, 2]
    assert all(wait >= 60 for wait in told[1])


def test_a_batch_is_told_how_many_are_computed_when_it_begins(kitchen: Kitchen) -> None:
    told: list[tuple[str, int]] = []
    pool = WorkPool(
        workers=2, max_queue=6, share=lambda computing: told.append((threading.current_thread().name, computing))
    )

    async def main() -> None:
        ask, first = await busy(pool, kitchen)
        second = ask("b", key="another")
        await reached(lambda: len(told) == 2)
        kitchen.let_go()
        await asyncio.gather(first, second)
        # a client may go on before the thread that answered it has ended its batch
        while told[-1][1] == 2:
            await ask("c")

    asyncio.run(main())
    pool.stop()
    assert [computing for _, computing in told][:2] == [1, 2]
    assert told[-1][1] == 1
    assert len({name for name, _ in told[:2]}) == 2, "each in the thread that computes it"
