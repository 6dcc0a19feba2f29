import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from openbook.application import admission
from openbook.application.admission import WorkPool
from openbook.application.batching import Abandoned, Batch
from openbook.errors import DeadlineExceeded, NoLiveIndex, Overloaded
from tests.fixtures.clock import Clock
from tests.waiting import HELD_S, PATIENCE_S, reached

LONG = 3600.0


class Gate:
    """Work that takes until it is let through, in steps, as a decoder does."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.ended: list[BaseException | None] = []

    def __call__(self, batch: Batch[None]) -> list[str]:
        self.begun.release()
        try:
            while not self.open.wait(0.005):
                batch.check()
        except BaseException as error:
            self.ended.append(error)
            raise
        self.ended.append(None)
        return ["done"]


async def begun(gate: Gate, count: int) -> None:
    for _ in range(count):
        assert await asyncio.to_thread(gate.begun.acquire, timeout=PATIENCE_S)


@asynccontextmanager
async def busy(pool: WorkPool, questions: int = 2) -> AsyncIterator[tuple[Gate, list["asyncio.Task[str]"]]]:
    """Both threads compute, and further questions wait. All are answered at the end of the `with` block."""
    gate = Gate()
    asked = [asyncio.ensure_future(pool.run(gate, None, timeout_s=LONG)) for _ in range(questions)]
    await begun(gate, 2)
    yield gate, asked
    gate.open.set()
    assert await asyncio.gather(*asked) == ["done"] * questions


async def until_free(pool: WorkPool) -> None:
    await reached(lambda: not pool.running() and not pool.waiting())


def test_a_question_whose_time_is_up_in_the_queue_is_never_computed(pool: WorkPool, clock: Clock) -> None:
    async def main() -> None:
        late = Gate()
        async with busy(pool):
            waiting = asyncio.ensure_future(pool.run(late, None, timeout_s=LONG / 2))
            await asyncio.sleep(0)
            assert pool.waiting() == 1
            clock.forward(LONG / 2)
            with pytest.raises(DeadlineExceeded):
                await waiting
            assert pool.waiting() == 0
        assert not late.begun.acquire(blocking=False)

    asyncio.run(main())


def test_a_client_that_hangs_up_in_the_queue_frees_its_slot_at_once(pool: WorkPool) -> None:
    async def main() -> None:
        async with busy(pool) as (gate, _):
            waiting = asyncio.ensure_future(pool.run(gate, None, timeout_s=LONG))
            await asyncio.sleep(0)
            assert pool.waiting() == 1
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert pool.waiting() == 0

    asyncio.run(main())


def test_a_busy_pool_responds_as_long_as_its_work_gets_on(pool: WorkPool, clock: Clock) -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    def stuck(batch: Batch[None]) -> list[bool]:
        begun.release()
        return [go_on.wait(HELD_S)]

    async def main() -> None:
        asked = [asyncio.ensure_future(pool.run(stuck, None, timeout_s=LONG)) for _ in range(2)]
        for _ in asked:
            assert await asyncio.to_thread(begun.acquire, timeout=PATIENCE_S)
        assert await pool.responds(within_s=0)
        clock.forward(admission.STALLED_AFTER_S)
        assert not await pool.responds(within_s=0)
        go_on.set()
        assert await asyncio.gather(*asked) == [True, True]

    asyncio.run(main())


def test_a_pool_whose_threads_have_ended_does_not_respond(pool: WorkPool) -> None:
    pool.stop()
    assert not asyncio.run(pool.responds(within_s=0.05))


def test_closing_ends_what_takes_too_long(pool: WorkPool, clock: Clock) -> None:
    async def main() -> None:
        gate = Gate()
        asked = [asyncio.ensure_future(pool.run(gate, None, timeout_s=LONG)) for _ in range(3)]
        await begun(gate, 2)
        closing = asyncio.ensure_future(pool.close(within_s=PATIENCE_S))
        await asyncio.sleep(0)
        clock.forward(PATIENCE_S)
        assert await closing
        ends = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(end) for end in ends] == [NoLiveIndex] * 3
        assert [type(end) for end in gate.ended] == [Abandoned] * 2

    asyncio.run(main())


def test_a_thread_that_cannot_start_refuses_its_question_and_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = WorkPool(workers=2, max_queue=0)

    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        for _ in range(3):
            with pytest.raises(RuntimeError, match="new thread"):
                asyncio.run(pool.run(lambda batch: [7], None, timeout_s=LONG))
    assert (pool.running(), pool.waiting()) == (0, 0)

    async def main() -> None:
        async with busy(pool):
            # the calls that the executor kept for its threads are not counted as threads
            assert await pool.responds(within_s=PATIENCE_S)

    asyncio.run(main())
    pool.stop()


@pytest.mark.parametrize("callback", ["observe", "share"])
def test_an_error_beside_the_computing_ends_the_question_and_not_the_thread(callback: str) -> None:
    errors = iter([MemoryError()])

    def fails_once(told: object) -> None:
        for error in errors:
            raise error

    pool = WorkPool(1, 1, **{callback: fails_once})
    with pytest.raises(MemoryError):
        asyncio.run(pool.run(lambda batch: [7], None, timeout_s=LONG))
    assert asyncio.run(pool.run(lambda batch: [7], None, timeout_s=LONG)) == 7
    assert asyncio.run(pool.responds(within_s=PATIENCE_S))
    assert (pool.running(), pool.waiting()) == (0, 0)
    pool.stop()


# --- work that comes last ----------------------------------------------------------------------------------


def test_what_comes_last_begins_when_no_question_waits_and_takes_no_place() -> None:
    pool, gate, order = WorkPool(workers=1, max_queue=2), Gate(), list[str]()

    async def last() -> None:
        await asyncio.to_thread(pool.run_last, lambda batch: order.append("last"), timeout_s=LONG)

    async def main() -> None:
        asked = [asyncio.ensure_future(pool.run(gate, None, timeout_s=LONG))]
        await begun(gate, 1)
        check = asyncio.ensure_future(last())
        # longer than a thread needs to begin
        await asyncio.sleep(0.1)
        assert (pool.running(), pool.waiting()) == (1, 0)
        for name in "ab":
            asked.append(
                asyncio.ensure_future(pool.run(lambda batch, name=name: [order.append(name)], None, timeout_s=LONG))
            )
        await asyncio.sleep(0)
        assert (pool.running(), pool.waiting()) == (1, 2)
        with pytest.raises(Overloaded):
            await pool.run(gate, None, timeout_s=LONG)
        gate.open.set()
        await asyncio.gather(*asked, check)

    asyncio.run(main())
    pool.stop()
    assert order == ["a", "b", "last"]


def test_what_comes_last_and_never_begins_ends_with_its_time(pool: WorkPool) -> None:
    async def main() -> None:
        async with busy(pool):
            with pytest.raises(DeadlineExceeded):
                await asyncio.to_thread(pool.run_last, lambda batch: None, timeout_s=0.02)
            assert (pool.running(), pool.waiting()) == (2, 0)

    asyncio.run(main())


@pytest.mark.parametrize("ended_by", ["time", "stop"])
def test_what_comes_last_is_computed_no_more_when_the_call_returns(pool: WorkPool, ended_by: str) -> None:
    gate = Gate()

    async def main() -> None:
        timeout_s = 0.05 if ended_by == "time" else LONG
        last = asyncio.ensure_future(asyncio.to_thread(pool.run_last, gate, timeout_s=timeout_s))
        await begun(gate, 1)
        if ended_by == "stop":
            pool.stop()
        with pytest.raises(DeadlineExceeded if ended_by == "time" else NoLiveIndex):
            await last
        assert len(gate.ended) == 1

    asyncio.run(main())
