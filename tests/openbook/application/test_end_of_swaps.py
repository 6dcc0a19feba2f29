"""The service ends while a swap is under way: it gets its time, then ends, and nothing is left half done."""

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import IndexVersion
from openbook.errors import ShuttingDown
from openbook.storage import durable
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.indexes import DIMENSION, ENCODER
from tests.openbook.storage.mappings import unmapped_soon

TIMEOUT = 30
OLD = IndexVersion("tiny-2016", 0, "2016-12-21")


@pytest.fixture
def history(store: IndexStore) -> SwapHistory:
    return SwapHistory(store.folder)


@pytest.fixture
def swap_index(store: IndexStore, live: LiveIndex, telemetry: Telemetry, history: SwapHistory) -> Iterator[SwapIndex]:
    swap_index = SwapIndex(
        store,
        live,
        telemetry,
        encoder_fingerprint=ENCODER,
        dimension=DIMENSION,
        free_memory=lambda: sys.maxsize,
        history=history,
        drain_s=3600.0,
    )
    yield swap_index
    swap_index.close(within_s=0.0)


@pytest.fixture
def slow_checksum(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a version that takes minutes to read."""
    sha256_of = durable.sha256_of

    def slowly(path: Path, progress: Callable[[int], None] | None = None) -> str:
        def report(n_bytes: int) -> None:
            time.sleep(0.02)
            if progress is not None:
                progress(n_bytes)

        return sha256_of(path, report)

    monkeypatch.setattr(durable, "BLOCK_BYTES", 4)
    monkeypatch.setattr(durable, "sha256_of", slowly)


def reached(swap_index: SwapIndex, stage: str) -> bool:
    until = time.monotonic() + TIMEOUT
    while swap_index.progress().stage != stage and time.monotonic() < until:
        time.sleep(0.001)
    return swap_index.progress().stage == stage


def outcomes(history: SwapHistory) -> list[tuple[str, str, int | None]]:
    return [(record.version, record.outcome, record.generation) for record in history.last(9)]


def test_a_drain_that_a_lease_holds_ends_and_what_was_live_is_live(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore, history: SwapHistory
) -> None:
    with live.lease() as lease:
        swap = swap_index.begin("tiny-2018", policy="resource")
        assert reached(swap_index, "drain")
        started = time.monotonic()
        swap_index.close(within_s=0.2)
        assert 0.2 <= time.monotonic() - started < 10
        with pytest.raises(ShuttingDown, match="so 'tiny-2018' was not loaded"):
            swap.result(0)
        assert live.now() == OLD
        with live.lease() as again:
            assert again.snapshot is lease.snapshot
            assert again.snapshot.passages([0])
    assert live.now() == OLD
    assert store.current() == "tiny-2016"
    assert outcomes(history) == [("tiny-2018", "not_ready", None)]
    assert "shutting down" in history.last(1)[0].detail
    live.close()
    assert unmapped_soon(store.folder)


@pytest.mark.usefixtures("slow_checksum")
def test_a_checksum_ends_between_two_blocks(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore, history: SwapHistory
) -> None:
    swap = swap_index.begin("tiny-2018", verify="checksum")
    assert reached(swap_index, "verify")
    started = time.monotonic()
    swap_index.close(within_s=0.1)
    assert 0.1 <= time.monotonic() - started < 10
    with pytest.raises(ShuttingDown):
        swap.result(0)
    assert swap_index.progress().stage == "verify"
    assert live.now() == OLD
    assert [one.index for one in live.residents()] == [OLD]
    assert store.current() == "tiny-2016"
    assert outcomes(history) == [("tiny-2018", "not_ready", None)]


def test_a_warm_up_ends_and_what_the_drain_closed_is_not_opened_again(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = IndexSnapshot.warm

    def endlessly(self: IndexSnapshot, report: Callable[[float], None]) -> None:
        while self.info.version == "tiny-2018":
            time.sleep(0.01)
            report(0.5)
        warm(self, report)

    monkeypatch.setattr(IndexSnapshot, "warm", endlessly)
    swap = swap_index.begin("tiny-2018", policy="resource")
    assert reached(swap_index, "warm")
    swap_index.close(within_s=0.0)
    with pytest.raises(ShuttingDown):
        swap.result(0)
    assert live.now() is None
    assert unmapped_soon(store.folder)


def test_a_swap_that_ends_in_time_is_a_swap(swap_index: SwapIndex, live: LiveIndex, history: SwapHistory) -> None:
    with live.lease():
        swap = swap_index.begin("tiny-2018", policy="resource")
        assert reached(swap_index, "drain")
    swap_index.close(within_s=TIMEOUT)
    assert swap.result(0).generation == 1
    assert outcomes(history) == [("tiny-2018", "ok", 1)]


def test_no_swap_begins_once_the_service_ends(swap_index: SwapIndex, history: SwapHistory) -> None:
    swap_index.close()
    with pytest.raises(ShuttingDown):
        swap_index.begin("tiny-2018")
    with pytest.raises(ShuttingDown, match="the version before"):
        swap_index.rollback()
    assert swap_index.progress().state == "idle"
    assert outcomes(history) == []
