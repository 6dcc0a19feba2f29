"""Swaps where several versions may be open: what is opened, what goes, what is written down, what can be asked."""

import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.application.swap_progress import Stage, SwapProgress
from openbook.application.telemetry import Telemetry
from openbook.entities import IndexVersion
from openbook.errors import (
    CanaryFailed,
    DrainTimedOut,
    IndexChecksumWrong,
    IndexFileSizeWrong,
    IndexTooLarge,
    IndexUnreadable,
    NothingToRollBackTo,
    ResidentsLimited,
    SwapInProgress,
    UnknownIndex,
)
from openbook.indexing.publishing import publish
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.indexes import DIMENSION, ENCODER, publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.storage.mappings import mapped, unmapped_soon

TIMEOUT = 30


@pytest.fixture
def live(store: IndexStore) -> Iterator[LiveIndex]:
    live = LiveIndex(store.open("tiny-2016"), residents=2)
    yield live
    live.close()


@pytest.fixture
def free() -> list[int]:
    return [sys.maxsize]


@pytest.fixture
def history(store: IndexStore) -> SwapHistory:
    return SwapHistory(store.folder)


@pytest.fixture
def swap_index(
    live: LiveIndex, store: IndexStore, telemetry: Telemetry, free: list[int], history: SwapHistory
) -> Iterator[SwapIndex]:
    swap_index = swapping(store, live, telemetry, free, history)
    yield swap_index
    swap_index.close()


def swapping(
    store: IndexStore,
    live: LiveIndex,
    telemetry: Telemetry,
    free: list[int],
    history: SwapHistory | None,
    drain_s: float = 30.0,
) -> SwapIndex:
    return SwapIndex(
        store,
        live,
        telemetry,
        encoder_fingerprint=ENCODER,
        dimension=DIMENSION,
        free_memory=lambda: free[0],
        history=history,
        replica="here:8000",
        drain_s=drain_s,
    )


def third(store: IndexStore) -> None:
    passages = tiny_passages("tiny-2018")
    publish(
        store,
        "tiny-2020",
        vectors=tiny_vectors(passages),
        passages=passages,
        index_type="flat",
        encoder_name=ENCODER,
        encoder_fingerprint=ENCODER,
        snapshot_date="2020-12-20",
    )


def opened(live: LiveIndex) -> list[str]:
    return [one.index.version for one in live.residents()]


# --- a version that is open already ------------------------------------------------------------------------


def test_a_swap_to_a_resident_is_a_flip(swap_index: SwapIndex, live: LiveIndex, store: IndexStore) -> None:
    swap_index.begin("tiny-2018").result(TIMEOUT)
    with live.lease("tiny-2016") as lease:
        kept = lease.snapshot
    report = swap_index.begin("tiny-2016").result(TIMEOUT)
    assert list(report.seconds) == ["verify", "warm", "flip", "current", "total"]
    with live.lease() as lease:
        assert lease.snapshot is kept
        assert lease.index == IndexVersion("tiny-2016", 2, "2016-12-21")
    assert store.current() == "tiny-2016"
    assert sorted(opened(live)) == ["tiny-2016", "tiny-2018"]


def test_a_resident_that_was_published_again_is_opened_again(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore
) -> None:
    swap_index.begin("tiny-2018").result(TIMEOUT)
    newer = tiny_passages("tiny-2018")
    publish_tiny(store, "tiny-2016", passages=newer, vectors=tiny_vectors(newer), replace=True)
    with live.lease("tiny-2016") as lease:
        assert list(lease.snapshot.passages(range(12))) == tiny_passages("tiny-2016")
    assert "open" in swap_index.begin("tiny-2016").result(TIMEOUT).seconds
    with live.lease() as lease:
        assert list(lease.snapshot.passages(range(12))) == newer
    assert sorted(opened(live)) == ["tiny-2016", "tiny-2018"]


def test_a_resident_whose_files_are_damaged_is_not_made_live(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore
) -> None:
    swap_index.load("tiny-2018").result(TIMEOUT)
    file = store.folder / "tiny-2018" / "passages.arrow"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[:-1])
    with pytest.raises(IndexFileSizeWrong):
        swap_index.begin("tiny-2018").result(TIMEOUT)
    file.write_bytes(content.replace(b"nepal", b"chile"))
    with pytest.raises(IndexChecksumWrong):
        swap_index.begin("tiny-2018", verify="checksum").result(TIMEOUT)
    now = live.now()
    assert now is not None
    assert now.version == "tiny-2016"


def test_what_was_verified_is_what_is_opened(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = IndexStore.check

    def check_and_be_late(self: IndexStore, version: str, **options: object) -> object:
        found = check(self, version, **options)  # type: ignore[arg-type]
        publish_tiny(store, "tiny-2018", passages=tiny_passages("tiny-2016"), replace=True)
        return found

    monkeypatch.setattr(IndexStore, "check", check_and_be_late)
    with pytest.raises(IndexUnreadable, match="published again meanwhile"):
        swap_index.begin("tiny-2018", verify="checksum").result(TIMEOUT)
    assert opened(live) == ["tiny-2016"]
    assert mapped(store.folder / "tiny-2018") == 0


# --- loading beside ----------------------------------------------------------------------------------------


def test_a_version_that_was_loaded_may_be_named_and_is_not_live(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore
) -> None:
    report = swap_index.load("tiny-2018", verify="checksum").result(TIMEOUT)
    assert list(report.seconds) == ["verify", "open", "warm", "total"]
    with live.lease("tiny-2018") as lease:
        assert lease.index == IndexVersion("tiny-2018", 0, "2018-12-20")
    now = live.now()
    assert now is not None
    assert now.version == store.current() == "tiny-2016"
    assert list(swap_index.load("tiny-2018").result(TIMEOUT).seconds) == ["verify", "total"]
    assert list(swap_index.load("tiny-2016").result(TIMEOUT).seconds) == ["verify", "total"]
    assert opened(live) == ["tiny-2016", "tiny-2018"]


def test_what_cannot_be_loaded_leaves_what_is_open(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore, telemetry: Telemetry, free: list[int]
) -> None:
    swap_index.load("tiny-2018").result(TIMEOUT)
    third(store)
    free[0] = 0
    with pytest.raises(IndexTooLarge):
        swap_index.load("tiny-2020").result(TIMEOUT)
    with pytest.raises(UnknownIndex):
        swap_index.load("tiny-1999").result(TIMEOUT)
    assert opened(live) == ["tiny-2016", "tiny-2018"]
    assert swap_index.progress().state == "failed"
    alone = LiveIndex(store.open("tiny-2016"))
    refusing = swapping(store, alone, telemetry, [sys.maxsize], None)
    with pytest.raises(ResidentsLimited):
        refusing.load("tiny-2018").result(TIMEOUT)
    refusing.close()
    assert opened(alone) == ["tiny-2016"]
    alone.close()


# --- memory ------------------------------------------------------------------------------------------------


def test_a_resident_that_is_not_live_goes_before_a_swap_is_refused(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore, free: list[int]
) -> None:
    third(store)
    swap_index.load("tiny-2018").result(TIMEOUT)
    sizes = {version: sum(file.bytes for file in store.info(version).files.values()) for version in store.versions()}
    free[0] = sizes["tiny-2016"] + sizes["tiny-2020"] - 1
    with pytest.raises(IndexTooLarge):
        swap_index.begin("tiny-2020").result(TIMEOUT)
    assert opened(live) == ["tiny-2016", "tiny-2018"]
    free[0] += 1
    swap_index.begin("tiny-2020").result(TIMEOUT)
    assert opened(live) == ["tiny-2016", "tiny-2020"]


def test_policy_resource_leaves_one_version_open(swap_index: SwapIndex, live: LiveIndex, store: IndexStore) -> None:
    third(store)
    swap_index.load("tiny-2018").result(TIMEOUT)
    assert "drain" in swap_index.begin("tiny-2020", policy="resource").result(TIMEOUT).seconds
    assert opened(live) == ["tiny-2020"]
    swap_index.load("tiny-2018").result(TIMEOUT)
    assert "drain" not in swap_index.begin("tiny-2018", policy="resource").result(TIMEOUT).seconds
    assert opened(live) == ["tiny-2018"]


def test_questions_that_do_not_end_are_not_waited_for_for_ever(
    live: LiveIndex, store: IndexStore, telemetry: Telemetry, history: SwapHistory
) -> None:
    swap_index = swapping(store, live, telemetry, [sys.maxsize], history, drain_s=0.05)
    with live.lease() as lease:
        with pytest.raises(DrainTimedOut) as raised:
            swap_index.begin("tiny-2018", policy="resource").result(TIMEOUT)
        assert raised.value.code == "drain_timed_out"
        assert live.now() == IndexVersion("tiny-2016", 0, "2016-12-21")
    with live.lease() as again:
        assert again.snapshot is lease.snapshot
        assert again.snapshot.passages([0])
    assert swap_index.progress().stage == "drain"
    assert swap_index.begin("tiny-2018", policy="resource").result(TIMEOUT).generation == 1
    swap_index.close()
    assert [record.outcome for record in history.last(9)] == ["ok", "drain_timed_out"]


# --- back ------------------------------------------------------------------------------------------------


def test_a_rollback_leads_back_and_the_next_one_forth(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore
) -> None:
    third(store)
    swap_index.begin("tiny-2018").result(TIMEOUT)
    swap_index.begin("tiny-2020").result(TIMEOUT)
    # a version that is opened again is no other version to go back to
    swap_index.begin("tiny-2020").result(TIMEOUT)
    report = swap_index.rollback(actor="ann").result(TIMEOUT)
    assert (report.previous, report.version, store.current()) == ("tiny-2020", "tiny-2018", "tiny-2018")
    assert swap_index.rollback().result(TIMEOUT).version == "tiny-2020"


def test_after_a_restart_the_history_leads_back(
    swap_index: SwapIndex, store: IndexStore, telemetry: Telemetry, history: SwapHistory
) -> None:
    swap_index.begin("tiny-2018").result(TIMEOUT)
    with pytest.raises(UnknownIndex):
        swap_index.begin("tiny-1999").result(TIMEOUT)
    restarted = LiveIndex(store.open("tiny-2018"))
    again = swapping(store, restarted, telemetry, [sys.maxsize], history)
    assert again.rollback().result(TIMEOUT).version == "tiny-2016"
    again.close()
    restarted.close()


def test_without_a_swap_there_is_nothing_to_go_back_to(
    swap_index: SwapIndex, live: LiveIndex, history: SwapHistory
) -> None:
    with pytest.raises(NothingToRollBackTo, match="before 'tiny-2016'"):
        swap_index.rollback().result(TIMEOUT)
    assert opened(live) == ["tiny-2016"]
    assert [record.outcome for record in history.last(9)] == ["no_previous_index"]
    # a history that speaks of other versions says nothing of this one
    swap_index.begin("tiny-2018").result(TIMEOUT)
    assert swap_index.rollback().result(TIMEOUT).version == "tiny-2016"


# --- what is written down ------------------------------------------------------------------------------------


def test_every_swap_and_every_refusal_is_written_down(
    swap_index: SwapIndex, live: LiveIndex, store: IndexStore, history: SwapHistory
) -> None:
    with live.lease():
        first = swap_index.begin("tiny-2018", policy="resource", actor="ann")
        with pytest.raises(SwapInProgress):
            swap_index.begin("tiny-2016", actor="bob")
    first.result(TIMEOUT)
    with pytest.raises(UnknownIndex):
        swap_index.begin("tiny-1999", actor="carol").result(TIMEOUT)
    (store.folder / "tiny-2016" / "index.faiss").write_bytes(b"")
    with pytest.raises(IndexFileSizeWrong):
        swap_index.rollback(actor="dave").result(TIMEOUT)
    swap_index.close()
    records = {record.actor: record for record in history.last(9)}
    assert {
        actor: (one.previous, one.version, one.policy, one.outcome, one.generation) for actor, one in records.items()
    } == {
        "ann": ("tiny-2016", "tiny-2018", "resource", "ok", 1),
        "bob": ("tiny-2016", "tiny-2016", "availability", "swap_in_progress", None),
        "carol": ("tiny-2018", "tiny-1999", "availability", "unknown_index", None),
        "dave": ("tiny-2018", "tiny-2016", "availability", "index_corrupt", None),
    }
    assert all(record.replica == "here:8000" and record.time.endswith("+00:00") for record in records.values())
    assert "'index.faiss' of index 'tiny-2016' has 0 bytes" in records["dave"].detail
    assert records["ann"].seconds > 0


def test_a_history_that_cannot_be_written_stops_no_swap(
    swap_index: SwapIndex, store: IndexStore, caplog: pytest.LogCaptureFixture
) -> None:
    (store.folder / "history.jsonl").mkdir()
    assert swap_index.begin("tiny-2018").result(TIMEOUT).durable
    assert "history of swaps could not be written" in caplog.text


# --- progress ----------------------------------------------------------------------------------------------


def test_progress_tells_the_stage_while_it_lasts_and_how_it_ended(swap_index: SwapIndex, live: LiveIndex) -> None:
    assert swap_index.progress() == SwapProgress()
    with live.lease():
        swap = swap_index.begin("tiny-2018", policy="resource", actor="ann")
        until = time.monotonic() + TIMEOUT
        while swap_index.progress().stage != "drain" and time.monotonic() < until:
            time.sleep(0.005)
        early = swap_index.progress()
        time.sleep(0.02)
        late = swap_index.progress()
    assert (early.state, early.version, early.previous) == ("running", "tiny-2018", "tiny-2016")
    assert (early.policy, early.actor, early.stage, early.error) == ("resource", "ann", "drain", None)
    assert list(early.seconds) == ["verify", "open", "drain", "total"]
    assert late.seconds["drain"] > early.seconds["drain"]
    report = swap.result(TIMEOUT)
    done = swap_index.progress()
    assert (done.state, done.stage, done.seconds, done.error) == ("done", None, report.seconds, None)
    assert done.started_at == early.started_at
    assert list(done.seconds) == [*get_args(Stage), "total"]


def test_progress_tells_why_it_failed_and_where(swap_index: SwapIndex, store: IndexStore) -> None:
    (store.folder / "tiny-2018" / "index.faiss").unlink()
    with pytest.raises(Exception, match="lacks its file"):
        swap_index.begin("tiny-2018").result(TIMEOUT)
    progress = swap_index.progress()
    assert (progress.state, progress.stage, progress.error) == ("failed", "verify", "index_corrupt")
    assert progress.detail == "The index 'tiny-2018' lacks its file 'index.faiss'."


def test_a_checksum_and_a_warm_up_tell_how_far_they_are(swap_index: SwapIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, set[float | None]] = {}
    warm, check = IndexSnapshot.warm, IndexStore.check

    def look(report: object) -> object:
        def told(fraction: float) -> None:
            report(fraction)  # type: ignore[operator]
            progress = swap_index.progress()
            seen.setdefault(str(progress.stage), set()).add(progress.fraction)

        return told

    monkeypatch.setattr(IndexSnapshot, "warm", lambda self, report: warm(self, look(report)))
    monkeypatch.setattr(
        IndexStore,
        "check",
        lambda self, version, *, verify, report: check(self, version, verify=verify, report=look(report)),
    )
    swap_index.begin("tiny-2018", verify="checksum").result(TIMEOUT)
    assert set(seen) == {"verify", "warm"}
    assert 1.0 in seen["verify"]
    assert all(fraction is not None and 0 < fraction <= 1 for fractions in seen.values() for fraction in fractions)


# --- what is left --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("residents", [1, 2, 3])
def test_fifty_swaps_leave_no_descriptor_no_thread_and_no_mapping(
    store: IndexStore, telemetry: Telemetry, history: SwapHistory, residents: int
) -> None:
    third(store)
    live = LiveIndex(store.open("tiny-2016"), residents=residents)
    swap_index = swapping(store, live, telemetry, [sys.maxsize], history)
    versions = ("tiny-2018", "tiny-2020", "tiny-2016")

    def held() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    def swap(turn: int) -> None:
        policy = "resource" if turn % 7 == 6 else "availability"
        swap_index.begin(versions[turn % 3], policy=policy).result(TIMEOUT)  # type: ignore[arg-type]
        with live.lease() as lease:
            assert lease.snapshot.search(tiny_vectors(tiny_passages("tiny-2016"))[:1], 3).shape == (1, 3)

    for turn in range(5):
        swap(turn)
    before = held()
    for turn in range(5, 55):
        swap(turn)
    assert held() == before
    until = time.monotonic() + 10
    while mapped(store.folder) > 2 * residents and time.monotonic() < until:
        time.sleep(0.01)
    assert 2 <= mapped(store.folder) <= 2 * residents
    assert len(live.residents()) <= residents
    swap_index.close()
    live.close()
    assert unmapped_soon(store.folder)


def test_a_failed_swap_leaves_nothing_mapped_though_its_error_is_kept(
    swap_index: SwapIndex, store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: IndexSnapshot, report: object = None) -> None:
        raise CanaryFailed(version=self.info.version, row=0, found=1)

    monkeypatch.setattr(IndexSnapshot, "warm", fail)
    kept = swap_index.begin("tiny-2018")
    assert isinstance(kept.exception(TIMEOUT), CanaryFailed)
    assert unmapped_soon(store.folder / "tiny-2018")


def test_a_load_that_has_no_room_is_refused_before_anything_is_read(
    store: IndexStore, telemetry: Telemetry, free: list[int]
) -> None:
    """To read tens of gigabytes first would drop the pages of the index that is live."""
    live = LiveIndex(store.open("tiny-2016"))
    swap_index = swapping(store, live, telemetry, free, None)
    try:
        with pytest.raises(ResidentsLimited):
            swap_index.load("tiny-2018").result(TIMEOUT)
        assert set(swap_index.progress().seconds) == {"verify", "total"}
        with pytest.raises(UnknownIndex):
            swap_index.load("tiny-1999").result(TIMEOUT)
        # what is open already needs no room
        assert swap_index.load("tiny-2016").result(TIMEOUT).version == "tiny-2016"
    finally:
        swap_index.close()
        live.close()


def test_a_swap_that_begins_as_another_ends_knows_what_is_live(
    swap_index: SwapIndex, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked before the other had flipped, and may begin after: what it replaces is not what it saw."""
    looked, ended = threading.Event(), threading.Event()
    previous: list[str | None] = []
    now = LiveIndex.now

    def slow_now(self: LiveIndex) -> IndexVersion | None:
        found = now(self)
        if threading.current_thread() is second and not looked.is_set():
            looked.set()
            ended.wait(TIMEOUT)
        return found

    def ask() -> None:
        while not previous:
            try:
                previous.append(swap_index.begin("tiny-2016").result(TIMEOUT).previous)
            except SwapInProgress:
                time.sleep(0.01)

    second = threading.Thread(target=ask)
    monkeypatch.setattr(LiveIndex, "now", slow_now)
    with live.lease():
        first = swap_index.begin("tiny-2018", policy="resource")
        second.start()
        assert looked.wait(TIMEOUT)
    first.result(TIMEOUT)
    ended.set()
    second.join(TIMEOUT)
    assert previous == ["tiny-2018"]
