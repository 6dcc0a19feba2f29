import asyncio
import threading
import time

import pytest

from openbook.application import admission
from openbook.application.admission import WorkPool
from openbook.application.turn import Abandoned, Turn
from openbook.errors import DeadlineExceeded, NoLiveIndex, Overloaded

LONG = 30.0


class Gate:
    """Work that takes until it is let through, in steps, as a decoder does."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.open = threading.Event()
        self.ended: list[BaseException | None] = []

    def __call__(self, turn: Turn) -> str:
        self.begun.release()
        try:
            while not self.open.wait(0.005):
                turn.check()
        except BaseException as error:
            self.ended.append(error)
            raise
        self.ended.append(None)
        return "done"


async def begun(gate: Gate, count: int) -> None:
    for _ in range(count):
        assert await asyncio.to_thread(gate.begun.acquire, timeout=10)


async def until_free(pool: WorkPool) -> None:
    limit = time.monotonic() + 10
    while pool.running() or pool.waiting():
        assert time.monotonic() < limit
        await asyncio.sleep(0.005)


def test_the_result_of_the_work_comes_back(pool: WorkPool) -> None:
    assert asyncio.run(pool.run(lambda turn: 7, timeout_s=LONG)) == 7
    assert (pool.running(), pool.waiting()) == (0, 0)


def test_the_error_of_the_work_comes_back(pool: WorkPool) -> None:
    def work(turn: Turn) -> int:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        asyncio.run(pool.run(work, timeout_s=LONG))
    assert pool.running() == 0


def test_a_full_queue_refuses_at_once_and_says_when_to_come_back(pool: WorkPool) -> None:
    async def main() -> None:
        gate = Gate()
        admitted = [asyncio.ensure_future(pool.run(gate, timeout_s=LONG)) for _ in range(4)]
        await begun(gate, 2)
        assert (pool.running(), pool.waiting()) == (2, 2)
        started = time.perf_counter()
        with pytest.raises(Overloaded) as raised:
            await pool.run(gate, timeout_s=LONG)
        assert time.perf_counter() - started < 0.05
        assert raised.value.data["slots"] == 4
        assert raised.value.data["retry_after_s"] >= 1
        gate.open.set()
        assert await asyncio.gather(*admitted) == ["done"] * 4
        assert await pool.run(gate, timeout_s=LONG) == "done"

    asyncio.run(main())


def test_a_deadline_ends_the_work_between_two_steps_and_frees_the_slot(pool: WorkPool) -> None:
    async def main() -> None:
        gate = Gate()
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded) as raised:
            await pool.run(gate, timeout_s=0.1)
        assert raised.value.data == {"timeout_s": 0.1}
        assert time.monotonic() - started < 1
        await until_free(pool)
        assert isinstance(gate.ended[0], DeadlineExceeded | Abandoned)

    asyncio.run(main())


def test_a_deadline_is_kept_even_while_a_step_takes_too_long(pool: WorkPool) -> None:
    go_on = threading.Event()

    def one_long_step(turn: Turn) -> None:
        go_on.wait(10)
        turn.check()

    async def main() -> None:
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await pool.run(one_long_step, timeout_s=0.1)
        assert time.monotonic() - started < 1
        assert pool.running() == 1
        go_on.set()
        await until_free(pool)

    asyncio.run(main())


def test_a_question_whose_time_is_up_in_the_queue_is_never_computed(pool: WorkPool) -> None:
    async def main() -> None:
        gate, late = Gate(), Gate()
        running = [asyncio.ensure_future(pool.run(gate, timeout_s=LONG)) for _ in range(2)]
        await begun(gate, 2)
        with pytest.raises(DeadlineExceeded):
            await pool.run(late, timeout_s=0.05)
        assert pool.waiting() == 0
        gate.open.set()
        await asyncio.gather(*running)
        assert not late.begun.acquire(blocking=False)

    asyncio.run(main())


def test_a_client_that_hangs_up_does_not_free_its_slot_before_the_thread_ends(pool: WorkPool) -> None:
    go_on = threading.Event()
    in_step = threading.Semaphore(0)
    ended: list[type[BaseException]] = []

    def one_long_step(turn: Turn) -> None:
        in_step.release()
        go_on.wait(10)
        try:
            turn.check()
        except BaseException as error:
            ended.append(type(error))
            raise

    async def main() -> None:
        asked = asyncio.ensure_future(pool.run(one_long_step, timeout_s=LONG))
        await asyncio.to_thread(in_step.acquire, timeout=10)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert pool.running() == 1
        go_on.set()
        await until_free(pool)
        assert ended == [Abandoned]

    asyncio.run(main())


def test_a_client_that_hangs_up_in_the_queue_frees_its_slot_at_once(pool: WorkPool) -> None:
    async def main() -> None:
        gate = Gate()
        running = [asyncio.ensure_future(pool.run(gate, timeout_s=LONG)) for _ in range(2)]
        await begun(gate, 2)
        waiting = asyncio.ensure_future(pool.run(gate, timeout_s=LONG))
        await asyncio.sleep(0)
        assert pool.waiting() == 1
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert pool.waiting() == 0
        gate.open.set()
        await asyncio.gather(*running)

    asyncio.run(main())


def test_time_in_the_queue_is_measured(pool: WorkPool) -> None:
    async def main() -> float:
        gate = Gate()
        running = [asyncio.ensure_future(pool.run(gate, timeout_s=LONG)) for _ in range(2)]
        await begun(gate, 2)
        waiting = asyncio.ensure_future(pool.run(lambda turn: turn.queue_seconds, timeout_s=LONG))
        await asyncio.sleep(0.1)
        gate.open.set()
        await asyncio.gather(*running)
        return await waiting

    assert 0.09 < asyncio.run(main()) < 5


def test_an_idle_pool_responds(pool: WorkPool) -> None:
    assert asyncio.run(pool.responds(within_s=5))


def test_a_busy_pool_responds_as_long_as_its_work_gets_on(pool: WorkPool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        gate = Gate()
        running = [asyncio.ensure_future(pool.run(gate, timeout_s=LONG)) for _ in range(2)]
        await begun(gate, 2)
        assert await pool.responds(within_s=0.05)
        # no beat can be younger than this
        monkeypatch.setattr(admission, "STALLED_AFTER_S", -1.0)
        assert not await pool.responds(within_s=0.05)
        gate.open.set()
        await asyncio.gather(*running)

    asyncio.run(main())


def test_a_pool_whose_threads_have_ended_does_not_respond(pool: WorkPool) -> None:
    pool.stop()
    assert not asyncio.run(pool.responds(within_s=0.05))


def test_closing_waits_for_what_was_admitted_and_admits_nothing_more(pool: WorkPool) -> None:
    async def main() -> None:
        gate = Gate()
        asked = [asyncio.ensure_future(pool.run(gate, timeout_s=LONG)) for _ in range(3)]
        await begun(gate, 2)
        closing = asyncio.ensure_future(pool.close(within_s=10))
        await asyncio.sleep(0.05)
        assert not closing.done()
        with pytest.raises(NoLiveIndex, match="shutting down"):
            await pool.run(gate, timeout_s=LONG)
        gate.open.set()
        assert await asyncio.gather(*asked) == ["done"] * 3
        assert await closing

    asyncio.run(main())


def test_closing_ends_what_takes_too_long(pool: WorkPool) -> None:
    async def main() -> None:
        gate = Gate()
        asked = [asyncio.ensure_future(pool.run(gate, timeout_s=LONG)) for _ in range(3)]
        await begun(gate, 2)
        assert await pool.close(within_s=0.2)
        ends = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(end) for end in ends] == [NoLiveIndex] * 3
        assert [type(end) for end in gate.ended] == [Abandoned] * 2

    asyncio.run(main())


def test_work_finds_its_time_up_even_if_nobody_tells_it() -> None:
    Turn(LONG).check()
    with pytest.raises(DeadlineExceeded):
        Turn(0.0).check()
