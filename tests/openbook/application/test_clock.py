"""The system's clock is set, by hours and in both directions: what is awaited takes as long as it would have."""

import asyncio
import itertools
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from openbook.application.admission import WorkPool
from openbook.application.batching import Batch
from openbook.errors import DeadlineExceeded, Overloaded
from tests.waiting import PATIENCE_S


@pytest.fixture
def indexes_folder(tiny_indexes: Path, tmp_path: Path) -> Path:
    """Files alone: pymilvus counts the seconds of a call by the clock that is set here."""
    return Path(shutil.copytree(tiny_indexes, tmp_path / "indexes"))


@pytest.fixture(autouse=True)
def clock_is_set_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, now_ns = time.time, time.time_ns
    # forth and back, further each time
    jumps = (hours * 3600 * (-1) ** hours for hours in itertools.count())
    monkeypatch.setattr(time, "time", lambda: now() + next(jumps))
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() + next(jumps) * 10**9)


@pytest.fixture
def pool() -> Iterator[WorkPool]:
    pool = WorkPool(workers=1, max_queue=1)
    yield pool
    pool.stop()


def test_deadlines_and_admission_do_not_change(pool: WorkPool) -> None:
    go_on, began = threading.Event(), threading.Event()

    def compute(batch: Batch[None]) -> list[float]:
        began.set()
        while not go_on.wait(0.005):
            batch.check()
        return [job.queue_seconds for job in batch.jobs]

    async def main() -> None:
        first = asyncio.ensure_future(pool.run(compute, None, timeout_s=PATIENCE_S))
        assert await asyncio.to_thread(began.wait, PATIENCE_S)
        assert await pool.responds(within_s=0.05)
        started = time.monotonic()
        with pytest.raises(DeadlineExceeded):
            await pool.run(compute, None, timeout_s=0.1)
        assert 0.1 <= time.monotonic() - started < PATIENCE_S
        second = asyncio.ensure_future(pool.run(compute, None, timeout_s=PATIENCE_S))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded) as refused:
            await pool.run(compute, None, timeout_s=PATIENCE_S)
        assert refused.value.data["retry_after_s"] == 1
        closing = asyncio.ensure_future(pool.close(within_s=PATIENCE_S))
        await asyncio.sleep(0.05)
        go_on.set()
        assert all(0 <= waited < PATIENCE_S for waited in await asyncio.gather(first, second))
        assert await closing

    asyncio.run(main())
