"""Swaps, rollbacks and loads: what is verified, opened, closed and written down, and that a failure changes nothing."""

import errno
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.application.telemetry import Telemetry
from openbook.entities import IndexVersion, Passage
from openbook.errors import (
    DrainTimedOut,
    IndexCorrupt,
    IndexIncompatible,
    IndexTooLarge,
    OpenbookError,
    ShuttingDown,
    SwapInProgress,
    UnknownIndex,
)
from openbook.storage import durable
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import resident_bytes
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.indexes import cut_links, publish_tiny, tiny_passages, tiny_vectors
from tests.fixtures.replicas import Replica, Start
from tests.openbook.application.conftest import NEW, OLD, samples
from tests.openbook.storage.mappings import mapped, opened, until_unmapped
from tests.waiting import PATIENCE_S, until

two_residents = pytest.mark.parametrize("residents", [2])
each_policy = pytest.mark.parametrize("policy", ["availability", "resource"])


@pytest.fixture
def third(store: IndexStore) -> str:
    publish_tiny(store, "tiny-2018", as_version="tiny-2020", snapshot_date="2020-12-20")
    return "tiny-2020"


def swaps_counted(telemetry: Telemetry) -> dict[str, float]:
    prefix = 'openbook_swaps_total{outcome="'
    found = samples(telemetry).items()
    return {name.removeprefix(prefix).rstrip('"}'): value for name, value in found if name.startswith(prefix)}


def outcomes(history: SwapHistory) -> list[tuple[str, str, int | None]]:
    return [(record.version, record.outcome, record.generation) for record in history.last(9)]


def size_of(store: IndexStore, version: str) -> int:
    return resident_bytes(store.info(version))


def test_a_swap_makes_the_new_version_live_and_current(replica: Replica) -> None:
    report = replica.swap_index.begin("tiny-2018").result(PATIENCE_S)
    assert (report.version, report.previous, report.generation, report.durable) == ("tiny-2018", "tiny-2016", 1, True)
    assert list(report.seconds) == ["verify", "open", "warm", "flip", "current", "total"]
    assert report.seconds["total"] == pytest.approx(sum(report.seconds.values()) / 2)
    assert replica.live.now() == NEW
    assert replica.store.current() == "tiny-2018"
    assert replica.open_versions() == ["tiny-2018"]
    assert swaps_counted(replica.telemetry) == {"ok": 1}


def test_a_swap_to_the_version_that_is_live_opens_it_again(swap_index: SwapIndex, live: LiveIndex) -> None:
    assert "open" in swap_index.begin("tiny-2016").result(PATIENCE_S).seconds
    assert live.now() == IndexVersion("tiny-2016", 1, "2016-12-21")


# --- what cannot be served ---------------------------------------------------------------------------------


def change_a_byte(store: IndexStore) -> None:
    passages = store.file("tiny-2018", "passages.arrow")
    passages.write_bytes(passages.read_bytes().replace(b"nepal", b"chile"))


def cut_the_last_byte(store: IndexStore) -> None:
    passages = store.file("tiny-2018", "passages.arrow")
    passages.write_bytes(passages.read_bytes()[:-1])


def build_with_another_encoder(store: IndexStore) -> None:
    publish_tiny(store, "tiny-2018", encoder_fingerprint="another", replace=True)
    # a version that cannot be served anyway is not read to its end
    change_a_byte(store)


def build_with_another_dimension(store: IndexStore) -> None:
    vectors = tiny_vectors(tiny_passages("tiny-2018"), dimension=8)
    publish_tiny(store, "tiny-2018", vectors=vectors, replace=True)


def lose_all_links(store: IndexStore) -> None:
    # enough vectors that a walk without links misses nearly all of them
    vectors = np.random.default_rng(0).standard_normal((300, 32)).astype(np.float32)
    passages = [Passage(str(row), "title", "text") for row in range(300)]
    publish_tiny(store, "tiny-2018", vectors=vectors, passages=passages, index_type="hnsw", replace=True)
    cut_links(store.file("tiny-2018", "index.faiss"))


@pytest.mark.parametrize(
    ("version", "damage", "verify", "error", "case"),
    [
        ("tiny-2018", cut_the_last_byte, "manifest", IndexCorrupt, "size"),
        (
            "tiny-2018",
            lambda store: (store.folder / "tiny-2018/manifest.json").write_text("{"),
            "manifest",
            IndexCorrupt,
            "manifest",
        ),
        (
            "tiny-2018",
            lambda store: store.file("tiny-2018", "passages.arrow").unlink(),
            "manifest",
            IndexCorrupt,
            "missing",
        ),
        ("tiny-2018", change_a_byte, "checksum", IndexCorrupt, "checksum"),
        ("tiny-2018", build_with_another_encoder, "checksum", IndexIncompatible, ""),
        ("tiny-2018", build_with_another_dimension, "manifest", IndexIncompatible, "dimension"),
        ("tiny-2018", lose_all_links, "manifest", IndexCorrupt, "canary"),
        ("wiki-1999", lambda store: None, "manifest", UnknownIndex, ""),
        ("../tiny-2018", lambda store: None, "manifest", UnknownIndex, "name"),
    ],
)
@each_policy
def test_a_swap_to_what_cannot_be_served_changes_nothing(
    replica: Replica,
    policy: str,
    version: str,
    damage: Callable[[IndexStore], None],
    verify: str,
    error: type[OpenbookError],
    case: str,
) -> None:
    damage(replica.store)
    with pytest.raises(error) as raised:
        replica.swap_index.begin(version, policy=policy, verify=verify).result(PATIENCE_S)  # type: ignore[arg-type]
    assert raised.value.case == case
    assert replica.live.now() == OLD
    assert replica.open_versions() == ["tiny-2016"]
    with replica.live.lease() as lease:
        assert lease.snapshot.passages([0])[0].title == "The long river"
    assert replica.store.current() == "tiny-2016"
    assert swaps_counted(replica.telemetry) == {error.code: 1}


def test_what_was_verified_is_what_is_opened(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    check = IndexStore.check

    def check_and_be_late(self: IndexStore, version: str, **options: object) -> object:
        found = check(self, version, **options)  # type: ignore[arg-type]
        publish_tiny(replica.store, "tiny-2018", passages=tiny_passages("tiny-2016"), replace=True)
        return found

    monkeypatch.setattr(IndexStore, "check", check_and_be_late)
    with pytest.raises(IndexCorrupt, match="published again meanwhile"):
        replica.swap_index.begin("tiny-2018", verify="checksum").result(PATIENCE_S)
    assert replica.open_versions() == ["tiny-2016"]
    until_unmapped(replica.store.folder / "tiny-2018")


def test_a_failed_swap_leaves_nothing_mapped_though_its_error_is_kept(replica: Replica) -> None:
    lose_all_links(replica.store)
    kept = replica.swap_index.begin("tiny-2018")
    assert isinstance(kept.exception(PATIENCE_S), IndexCorrupt)
    until_unmapped(replica.store.folder / "tiny-2018")


def test_a_current_that_cannot_be_written_does_not_undo_the_swap(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(self: IndexStore, version: str, *, since: object = None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(IndexStore, "set_current", full_disk)
    report = replica.swap_index.begin("tiny-2018").result(PATIENCE_S)
    assert (report.generation, report.durable) == (1, False)
    assert replica.live.now() == NEW
    assert replica.store.current() == "tiny-2016"
    assert swaps_counted(replica.telemetry) == {"not_durable": 1}
    monkeypatch.undo()
    assert replica.swap_index.begin("tiny-2018").result(PATIENCE_S).durable


# --- one at a time -----------------------------------------------------------------------------------------


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
            ended.wait(PATIENCE_S)
        return found

    def ask() -> None:
        while not previous:
            try:
                previous.append(swap_index.begin("tiny-2016").result(PATIENCE_S).previous)
            except SwapInProgress:
                time.sleep(0.01)

    second = threading.Thread(target=ask)
    monkeypatch.setattr(LiveIndex, "now", slow_now)
    with live.lease():
        first = swap_index.begin("tiny-2018", policy="resource")
        second.start()
        assert looked.wait(PATIENCE_S)
    first.result(PATIENCE_S)
    ended.set()
    second.join(PATIENCE_S)
    assert previous == ["tiny-2018"]


def test_a_swap_whose_thread_cannot_start_never_happens(
    swap_index: SwapIndex, live: LiveIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor keeps its call, and runs it before the next swap's."""

    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(RuntimeError, match="new thread"):
            swap_index.begin("tiny-2016")
    assert swap_index.progress().state == "failed"
    assert swap_index.begin("tiny-2018").result(PATIENCE_S).generation == 1
    assert live.now() == NEW


# --- a version that is open already ------------------------------------------------------------------------


@two_residents
def test_a_swap_to_a_resident_is_a_flip(replica: Replica) -> None:
    replica.swap_index.begin("tiny-2018").result(PATIENCE_S)
    with replica.live.lease("tiny-2016") as lease:
        kept = lease.snapshot
    report = replica.swap_index.begin("tiny-2016").result(PATIENCE_S)
    assert list(report.seconds) == ["verify", "warm", "flip", "current", "total"]
    with replica.live.lease() as lease:
        assert lease.snapshot is kept
        assert lease.index == IndexVersion("tiny-2016", 2, "2016-12-21")
    assert replica.store.current() == "tiny-2016"
    assert sorted(replica.open_versions()) == ["tiny-2016", "tiny-2018"]


@two_residents
def test_a_resident_that_was_published_again_is_opened_again(replica: Replica) -> None:
    replica.swap_index.begin("tiny-2018").result(PATIENCE_S)
    newer = tiny_passages("tiny-2018")
    publish_tiny(replica.store, "tiny-2016", passages=newer, vectors=tiny_vectors(newer), replace=True)
    with replica.live.lease("tiny-2016") as lease:
        assert list(lease.snapshot.passages(range(12))) == tiny_passages("tiny-2016")
    assert "open" in replica.swap_index.begin("tiny-2016").result(PATIENCE_S).seconds
    with replica.live.lease() as lease:
        assert list(lease.snapshot.passages(range(12))) == newer
    assert sorted(replica.open_versions()) == ["tiny-2016", "tiny-2018"]


@two_residents
def test_a_resident_whose_files_are_damaged_is_not_made_live(replica: Replica) -> None:
    replica.swap_index.load("tiny-2018").result(PATIENCE_S)
    file = replica.store.folder / "tiny-2018" / "passages.arrow"
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[:-1])
    with pytest.raises(IndexCorrupt, match="bytes where its manifest says"):
        replica.swap_index.begin("tiny-2018").result(PATIENCE_S)
    file.write_bytes(content.replace(b"nepal", b"chile"))
    with pytest.raises(IndexCorrupt, match="does not match the sha256"):
        replica.swap_index.begin("tiny-2018", verify="checksum").result(PATIENCE_S)
    assert replica.version() == "tiny-2016"


def test_a_load_that_has_no_room_is_refused_before_anything_is_read(replica: Replica) -> None:
    """To read tens of gigabytes first would drop the pages of the index that is live."""
    with pytest.raises(IndexTooLarge, match="OPENBOOK_RESIDENTS allows"):
        replica.swap_index.load("tiny-2018").result(PATIENCE_S)
    assert set(replica.swap_index.progress().seconds) == {"verify", "total"}
    with pytest.raises(UnknownIndex):
        replica.swap_index.load("tiny-1999").result(PATIENCE_S)
    # what is open already needs no room
    assert replica.swap_index.load("tiny-2016").result(PATIENCE_S).version == "tiny-2016"
    assert replica.open_versions() == ["tiny-2016"]


# --- memory ------------------------------------------------------------------------------------------------


def test_two_indexes_that_do_not_fit_are_refused_unless_the_old_one_goes_first(replica: Replica) -> None:
    needed = size_of(replica.store, "tiny-2018")
    # pages of mapped files count as free, although the live index needs its pages
    replica.free[0] = size_of(replica.store, "tiny-2016") + needed - 1
    with pytest.raises(IndexTooLarge) as raised:
        replica.swap_index.begin("tiny-2018").result(PATIENCE_S)
    assert raised.value.data == {"version": "tiny-2018", "needed": needed, "available": needed - 1}
    assert replica.live.now() == OLD
    assert replica.swap_index.begin("tiny-2018", policy="resource").result(PATIENCE_S).generation == 1
    replica.free[0] = sys.maxsize
    assert replica.swap_index.begin("tiny-2016").result(PATIENCE_S).generation == 2
    assert swaps_counted(replica.telemetry) == {"index_too_large": 1, "ok": 2}


@two_residents
def test_a_resident_that_is_not_live_goes_before_a_swap_is_refused(replica: Replica, third: str) -> None:
    replica.swap_index.load("tiny-2018").result(PATIENCE_S)
    replica.free[0] = size_of(replica.store, "tiny-2016") + size_of(replica.store, third) - 1
    with pytest.raises(IndexTooLarge):
        replica.swap_index.begin(third).result(PATIENCE_S)
    assert replica.open_versions() == ["tiny-2016", "tiny-2018"]
    replica.free[0] += 1
    replica.swap_index.begin(third).result(PATIENCE_S)
    assert replica.open_versions() == ["tiny-2016", third]


@two_residents
def test_policy_resource_leaves_one_version_open(replica: Replica, third: str) -> None:
    for version, drains in ((third, True), ("tiny-2018", False)):
        # before the second swap its version is a resident, and nothing has to go first
        replica.swap_index.load("tiny-2018").result(PATIENCE_S)
        assert ("drain" in replica.swap_index.begin(version, policy="resource").result(PATIENCE_S).seconds) is drains
        assert replica.open_versions() == [version]


def test_a_drain_ends_in_time_although_questions_do_not(start: Start) -> None:
    replica = start(drain_s=0.05)
    with replica.live.lease() as lease:
        with pytest.raises(DrainTimedOut) as raised:
            replica.swap_index.begin("tiny-2018", policy="resource").result(PATIENCE_S)
        assert raised.value.code == "drain_timed_out"
        assert replica.live.now() == OLD
    with replica.live.lease() as again:
        assert again.snapshot is lease.snapshot
        assert again.snapshot.passages([0])
    assert replica.swap_index.progress().stage == "drain"
    assert replica.swap_index.begin("tiny-2018", policy="resource").result(PATIENCE_S).generation == 1
    assert outcomes(replica.history) == [("tiny-2018", "ok", 1), ("tiny-2018", "drain_timed_out", None)]


# --- back ------------------------------------------------------------------------------------------------


def test_a_rollback_leads_back_and_the_next_one_forth(swap_index: SwapIndex, store: IndexStore, third: str) -> None:
    # a version that is opened again is no other version to go back to
    for version in ("tiny-2018", third, third):
        swap_index.begin(version).result(PATIENCE_S)
    report = swap_index.rollback(actor="ann").result(PATIENCE_S)
    assert (report.previous, report.version, store.current()) == (third, "tiny-2018", "tiny-2018")
    assert swap_index.rollback().result(PATIENCE_S).version == third


def test_after_a_restart_the_history_leads_back(replica: Replica, start: Start) -> None:
    replica.swap_index.begin("tiny-2018").result(PATIENCE_S)
    with pytest.raises(UnknownIndex):
        replica.swap_index.begin("tiny-1999").result(PATIENCE_S)
    assert start().swap_index.rollback().result(PATIENCE_S).version == "tiny-2016"


# --- what is recorded --------------------------------------------------------------------------------------


def test_every_swap_and_every_refusal_is_written_down(replica: Replica) -> None:
    swap_index = replica.swap_index
    with replica.live.lease():
        first = swap_index.begin("tiny-2018", policy="resource", actor="ann")
        with pytest.raises(SwapInProgress):
            swap_index.begin("tiny-2016", actor="bob")
    first.result(PATIENCE_S)
    with pytest.raises(UnknownIndex):
        swap_index.begin("tiny-1999", actor="carol").result(PATIENCE_S)
    (replica.store.folder / "tiny-2016" / "passages.arrow").write_bytes(b"")
    with pytest.raises(IndexCorrupt, match="bytes where its manifest says"):
        swap_index.rollback(actor="dave").result(PATIENCE_S)
    records = {record.actor: record for record in replica.history.last(9)}
    assert {
        actor: (one.previous, one.version, one.policy, one.outcome, one.generation) for actor, one in records.items()
    } == {
        "ann": ("tiny-2016", "tiny-2018", "resource", "ok", 1),
        "bob": ("tiny-2016", "tiny-2016", "availability", "swap_in_progress", None),
        "carol": ("tiny-2018", "tiny-1999", "availability", "unknown_index", None),
        "dave": ("tiny-2018", "tiny-2016", "availability", "index_corrupt", None),
    }
    assert all(record.replica == "replica-0" and record.time.endswith("+00:00") for record in records.values())
    assert "'passages.arrow' of index 'tiny-2016' has 0 bytes" in records["dave"].detail
    assert records["ann"].seconds > 0


@pytest.mark.parametrize("broken", ["history", "listener"])
def test_what_cannot_record_a_swap_changes_nothing_of_it(
    replica: Replica, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    def listener(*_: object) -> None:
        raise RuntimeError("no collector")

    if broken == "history":
        (replica.store.folder / "history.jsonl").mkdir()
    else:
        replica.telemetry.on_swap(listener)
    with pytest.raises(UnknownIndex):
        replica.swap_index.begin("tiny-2020").result(PATIENCE_S)
    assert replica.swap_index.begin("tiny-2018").result(PATIENCE_S).durable
    assert replica.live.now() == NEW
    assert swaps_counted(replica.telemetry) == {"unknown_index": 1, "ok": 1}
    if broken == "history":
        assert "history of swaps could not be written" in caplog.text
    else:
        assert "no collector" in caplog.text
        assert outcomes(replica.history) == [("tiny-2018", "ok", 1), ("tiny-2020", "unknown_index", None)]


# a database in this process has descriptors and threads of its own
@pytest.mark.parametrize("files_or_milvus", ["files"], indirect=True)
@pytest.mark.parametrize("residents", [1, 3])
def test_fifty_swaps_leave_no_descriptor_no_thread_and_no_mapping(replica: Replica, residents: int, third: str) -> None:
    versions = ("tiny-2018", third, "tiny-2016")
    query = tiny_vectors(tiny_passages("tiny-2016"))[:1]  # (1, d)

    def swap(turn: int) -> None:
        policy = "resource" if turn % 7 == 6 else "availability"
        replica.swap_index.begin(versions[turn % 3], policy=policy).result(PATIENCE_S)  # type: ignore[arg-type]
        with replica.live.lease() as lease:
            assert lease.snapshot.search(query, 3).shape == (1, 3)

    for turn in range(5):
        swap(turn)
    folder = replica.store.folder
    files, threads = opened(folder), threading.active_count()
    for turn in range(5, 55):
        swap(turn)
    assert opened(folder) == files
    # threads of other tests may end or begin; a swap that leaves one makes fifty
    assert threading.active_count() < threads + 25
    until(lambda: 2 <= mapped(folder) <= 2 * residents)
    assert len(replica.live.residents()) <= residents
    replica.close()
    until_unmapped(folder)


# --- the service ends --------------------------------------------------------------------------------------


def end_and_fail(swap_index: SwapIndex, stage: str, **options: str) -> None:
    """The service ends while a swap to tiny-2018 is in this stage."""
    swap = swap_index.begin("tiny-2018", **options)  # type: ignore[arg-type]
    until(lambda: swap_index.progress().stage == stage)
    started = time.monotonic()
    swap_index.close(within_s=0.1)
    assert 0.1 <= time.monotonic() - started < PATIENCE_S
    with pytest.raises(ShuttingDown, match="so 'tiny-2018' was not loaded"):
        swap.result(0)
    assert swap_index.progress().stage == stage


def test_a_drain_that_a_lease_holds_ends_and_what_was_live_is_live(replica: Replica) -> None:
    with replica.live.lease() as lease:
        end_and_fail(replica.swap_index, "drain", policy="resource")
        assert replica.live.now() == OLD
        with replica.live.lease() as again:
            assert again.snapshot is lease.snapshot
            assert again.snapshot.passages([0])
    assert replica.live.now() == OLD
    assert replica.store.current() == "tiny-2016"
    assert outcomes(replica.history) == [("tiny-2018", "not_ready", None)]
    assert "shutting down" in replica.history.last(1)[0].detail
    replica.close()
    until_unmapped(replica.store.folder)


def test_a_checksum_ends_between_two_blocks(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    def endlessly(path: Path, progress: Callable[[int], None]) -> str:
        while True:
            time.sleep(0.01)
            progress(0)

    monkeypatch.setattr(durable, "sha256_of", endlessly)
    end_and_fail(replica.swap_index, "verify", verify="checksum")
    assert replica.live.now() == OLD
    assert replica.open_versions() == ["tiny-2016"]
    assert replica.store.current() == "tiny-2016"
    assert outcomes(replica.history) == [("tiny-2018", "not_ready", None)]


def test_a_warm_up_ends_and_what_the_drain_closed_is_not_opened_again(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endlessly(self: IndexSnapshot, report: Callable[[float], None]) -> None:
        while True:
            time.sleep(0.01)
            report(0.5)

    monkeypatch.setattr(IndexSnapshot, "warm", endlessly)
    end_and_fail(replica.swap_index, "warm", policy="resource")
    assert replica.live.now() is None
    until_unmapped(replica.store.folder)


@pytest.mark.parametrize("within_s", [None, PATIENCE_S])
def test_closing_waits_for_the_swap_that_is_under_way(replica: Replica, within_s: float | None) -> None:
    with replica.live.lease():
        swap = replica.swap_index.begin("tiny-2018", policy="resource")
        until(lambda: replica.swap_index.progress().stage == "drain")
    replica.swap_index.close(within_s=within_s)
    assert swap.result(0).generation == 1
    assert replica.live.now() == NEW
    assert outcomes(replica.history) == [("tiny-2018", "ok", 1)]


def test_no_swap_begins_once_the_service_ends(replica: Replica) -> None:
    replica.swap_index.close()
    with pytest.raises(ShuttingDown):
        replica.swap_index.begin("tiny-2018")
    with pytest.raises(ShuttingDown, match="the version before"):
        replica.swap_index.rollback()
    assert replica.swap_index.progress().state == "idle"
    assert outcomes(replica.history) == []
