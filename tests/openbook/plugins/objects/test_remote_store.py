"""A service whose versions lie in a store: what it names, fetches and keeps, and who writes CURRENT."""

import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from openbook.application.follow_current import FollowCurrent
from openbook.errors import (
    CurrentConflict,
    IndexCorrupt,
    IndexIncompatible,
    IndexInUse,
    NoIndexes,
    StoreUnreachable,
    UnknownIndex,
)
from openbook.plugins.objects import copying, remote_store
from openbook.plugins.objects.copying import push
from openbook.plugins.objects.fsspec_store import FsspecStore
from openbook.plugins.objects.remote_store import RemoteStore
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import SEAL
from openbook.storage.opening import remote_store as opened
from tests.fixtures.indexes import publish_tiny
from tests.fixtures.replicas import Replica
from tests.fixtures.stores import Silence, ignore, push_all, remote
from tests.openbook.application.conftest import samples
from tests.waiting import PATIENCE_S, until

EVERY_S = 0.01


@pytest.fixture(autouse=True)
def looking(soon_again: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_store, "LOOK_S", 0.0)
    monkeypatch.setattr(remote_store, "AWAY_S", 0.0)


class Fleet:
    """Machines on one store, each with a disk of its own."""

    def __init__(self, url: str, tmp_path: Path) -> None:
        self.url = url
        self._tmp_path = tmp_path
        self.replicas: list[Replica] = []

    def machine(self, number: int, **changed: Any) -> RemoteStore:
        return remote(self.url, self._tmp_path / f"disk-{number}", **changed)

    def start(self, number: int, version: str | None = None, **changed: Any) -> Replica:
        store = changed.pop("store", None) or self.machine(number)
        replica = Replica.start(
            store.folder,
            version,
            store=store,
            name=f"replica-{number}",
            **({"follow_every_s": EVERY_S, "pauses_s": (0.02, 0.04)} | changed),
        )
        self.replicas.append(replica)
        return replica


@pytest.fixture
def fleet(store_url: str, tiny_indexes: Path, tmp_path: Path) -> Iterator[Fleet]:
    push_all(store_url, tiny_indexes)
    fleet = Fleet(store_url, tmp_path)
    yield fleet
    for replica in fleet.replicas:
        replica.close()


class Away:
    """While it is set, the store does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.set = False
        self.calls = 0
        call = FsspecStore._call

        def answer(objects: FsspecStore, ask: Any, **more: Any) -> Any:
            self.calls += 1
            if self.set:
                raise StoreUnreachable(url=objects.url, reason="Connection refused")
            return call(objects, ask, **more)

        monkeypatch.setattr(FsspecStore, "_call", answer)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    return Away(monkeypatch)


def test_a_swap_pulls_verifies_flips_and_the_others_follow(fleet: Fleet) -> None:
    one, other = fleet.start(0), fleet.start(1)
    assert one.store.copies.versions() == ("tiny-2016",)  # type: ignore[attr-defined]
    report = one.swap_index.begin("tiny-2018", actor="ann").result(PATIENCE_S)
    assert report.durable
    assert list(report.seconds)[:2] == ["pull", "verify"]
    until(lambda: other.version() == "tiny-2018" and other.swap_index.progress().state == "done")
    assert one.store.current() == other.store.current() == "tiny-2018"
    # what is here is not pulled again, and the way back is open without the store
    back = other.swap_index.rollback().result(PATIENCE_S)
    assert "pull" not in back.seconds
    until(lambda: one.version() == "tiny-2016")


def test_of_two_swaps_at_once_the_one_that_wrote_first_counts_and_all_end_on_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = fleet.start(0), fleet.start(1, "tiny-2018", follow_every_s=3600.0)
    claimed, written = threading.Event(), threading.Event()
    fetch = RemoteStore.fetch

    def slow(self: RemoteStore, *more: Any) -> None:
        claimed.set()
        assert written.wait(PATIENCE_S)
        fetch(self, *more)

    with monkeypatch.context() as slowly:
        slowly.setattr(RemoteStore, "fetch", slow)
        swap = one.swap_index.begin("tiny-2018")
        assert claimed.wait(PATIENCE_S)
        # the same version again: another writing all the same
        IndexStore.fetch(other.store, "tiny-2016", lambda share: None)
        other.store.set_current("tiny-2016")
        written.set()
        report = swap.result(PATIENCE_S)
    assert not report.durable
    assert "tiny-2018 is live here alone: CURRENT was not written" in caplog.text
    assert other.store.current() == "tiny-2016"
    # the follower may have swapped since
    assert "not_durable" in [record.outcome for record in one.history.last(9)]
    until(lambda: one.version() == "tiny-2016")


@pytest.mark.parametrize("store_url", ["file", "memory"], indirect=True)
def test_current_is_written_only_where_it_is_the_one_that_was_seen(fleet: Fleet) -> None:
    store, objects = fleet.machine(0), FsspecStore(fleet.url)
    seen = store.claim_current()
    mark = objects.write_current("tiny-2018", objects.current_mark())
    # the same line is another writing
    assert objects.write_current("tiny-2018", mark) != mark
    with pytest.raises(CurrentConflict, match="'tiny-2018'"):
        store.set_current("tiny-2016", since=seen)
    with pytest.raises(CurrentConflict):
        objects.write_current("tiny-2016", None)
    assert store.set_current("tiny-2016") == store.current_mark()
    assert store.current() == "tiny-2016"
    with pytest.raises(UnknownIndex):
        store.set_current("other")


def test_a_store_that_is_away_leaves_live_what_is_live(
    fleet: Fleet, away: Away, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looked: list[float] = []
    look = FollowCurrent.look

    def timed(self: FollowCurrent) -> None:
        looked.append(time.monotonic())
        look(self)

    monkeypatch.setattr(FollowCurrent, "look", timed)
    replica = fleet.start(0)
    assert replica.follower is not None
    replica.store.fetch("tiny-2018", lambda share: None)
    away.set = True
    until(lambda: replica.follower is not None and replica.follower.problem() is not None)
    problem = replica.follower.problem()
    assert problem is not None
    assert (problem.code, replica.version()) == ("store_unreachable", "tiny-2016")
    assert samples(replica.telemetry)["openbook_following_ok"] == 0
    looked.clear()
    until(lambda: len(looked) > 4)
    # not every hundredth of a second, and said once
    assert looked[4] - looked[0] > 0.06
    assert sum("CURRENT cannot be read" in one.message for one in caplog.records) == 1
    # what is on the disk can be swapped to, and the report says that nobody follows
    report = replica.swap_index.begin("tiny-2018").result(PATIENCE_S)
    assert (report.durable, replica.version()) == (False, "tiny-2018")
    assert replica.store.versions() == ("tiny-2016", "tiny-2018")
    away.set = False
    until(lambda: replica.follower is not None and replica.follower.problem() is None)
    # CURRENT has not changed: what an operator has done by hand stands
    assert replica.version() == "tiny-2018"
    fleet.machine(9).set_current("tiny-2016")
    until(lambda: replica.version() == "tiny-2016")


def test_names_that_nobody_has_published_cost_the_store_nothing(fleet: Fleet, silence: Silence) -> None:
    store = fleet.machine(0)
    assert store.versions() == ("tiny-2016", "tiny-2018")
    silence.calls = 0
    with silence.kept():
        for number in range(20):
            with pytest.raises(UnknownIndex):
                store.info(f"nobody-{number}")
    # the list, which is refreshed by one at a time
    assert silence.calls == 1


def test_a_version_that_came_a_moment_ago_can_be_swapped_to(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = fleet.start(0)
    monkeypatch.setattr(remote_store, "LOOK_S", 3600.0)
    replica.store.versions()
    origin = IndexStore(tmp_path / "origin")
    publish_tiny(origin, "tiny-2018", as_version="new")
    push(FsspecStore(fleet.url), origin, "new", lambda share: None)
    assert replica.swap_index.begin("new").result(PATIENCE_S).durable
    assert replica.store.info("new").version == "new"


@pytest.mark.parametrize("store_url", ["file", "memory"], indirect=True)
def test_a_manifest_is_read_once_and_again_when_it_is_another(fleet: Fleet, tmp_path: Path, away: Away) -> None:
    store, origin = fleet.machine(0), IndexStore(tmp_path / "origin")
    before = store.info("tiny-2018")
    away.calls = 0
    assert store.info("tiny-2018") == before
    # of the list
    assert away.calls == 1
    publish_tiny(origin, "tiny-2016", as_version="tiny-2018")
    push(FsspecStore(fleet.url), origin, "tiny-2018", lambda share: None, replace=True)
    assert store.info("tiny-2018") == origin.info("tiny-2018") != before


def test_a_manifest_of_a_store_without_its_seal_is_refused(fleet: Fleet) -> None:
    objects, store = FsspecStore(fleet.url), fleet.machine(0)
    whole = objects.manifest("tiny-2018")
    assert whole is not None
    unsealed = json.loads(whole)
    del unsealed[SEAL]
    objects.put_manifest("tiny-2018", json.dumps(unsealed).encode(), objects.manifest_mark("tiny-2018"))
    for call in (store.info, store.info_now, lambda version: store.fetch(version, ignore)):
        with pytest.raises(IndexCorrupt, match=f"{SEAL}: it has been changed"):
            call("tiny-2018")
    assert store.copies.versions() == ()


def test_a_start_without_the_store_comes_back_on_the_copy_that_was_live(fleet: Fleet, away: Away) -> None:
    first = fleet.start(0)
    first.swap_index.begin("tiny-2018").result(PATIENCE_S)
    first.swap_index.begin("tiny-2016").result(PATIENCE_S)
    first.close()
    away.set = True
    assert fleet.machine(0).default_version() == "tiny-2016"
    with pytest.raises(StoreUnreachable, match="Connection refused"):
        fleet.machine(1).default_version()


def test_a_swap_that_cannot_be_served_pulls_nothing(fleet: Fleet, tmp_path: Path) -> None:
    origin = IndexStore(tmp_path / "origin")
    publish_tiny(origin, "tiny-2018", as_version="other", encoder_fingerprint="another")
    push(FsspecStore(fleet.url), origin, "other", lambda share: None)
    n_bytes: list[int] = []
    replica = fleet.start(0, store=fleet.machine(0, count=n_bytes.append))
    n_bytes.clear()
    with pytest.raises(IndexIncompatible):
        replica.swap_index.begin("other").result(PATIENCE_S)
    assert (n_bytes, replica.swap_index.progress().stage) == ([], "pull")


def test_copies_that_nobody_needs_go_and_none_that_somebody_needs(fleet: Fleet, tmp_path: Path) -> None:
    origin = IndexStore(tmp_path / "origin")
    for number in range(3):
        publish_tiny(origin, "tiny-2018", as_version=f"v{number}")
        push(FsspecStore(fleet.url), origin, f"v{number}", lambda share: None)
    store = fleet.machine(0, keep_local=1)
    # only here: no store would give it back
    publish_tiny(store.copies, "tiny-2018", as_version="mine")
    store.fetch("v2", lambda share: None)
    elsewhere = store.copies.open("v2")
    replica = fleet.start(0, store=store, follow_every_s=None)
    for version in ("v0", "v1"):
        replica.swap_index.begin(version).result(PATIENCE_S)
    assert store.copies.versions() == ("mine", "v0", "v1", "v2")
    elsewhere.close()
    replica.swap_index.begin("v0").result(PATIENCE_S)
    assert store.copies.versions() == ("mine", "v0", "v1")
    assert not list(store.folder.glob(".deleted-*"))


def test_a_full_disk_takes_older_copies_first(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fleet.machine(0, keep_local=9)
    store.fetch("tiny-2016", ignore)
    free = copying._free
    monkeypatch.setattr(copying, "_free", lambda folder: 0 if store.copies.versions() else free(folder))
    # what a pull of another version has left goes with them
    (store.folder / ".pulling-other-0123abcd").mkdir()
    store.fetch("tiny-2018", ignore)
    assert store.copies.versions() == ("tiny-2018",)
    assert list(store.folder.glob(".pulling*")) == []


def test_a_version_that_is_current_is_not_removed_from_the_store(fleet: Fleet) -> None:
    store = fleet.machine(0)
    with pytest.raises(IndexInUse):
        store.remove("tiny-2016")
    store.remove("tiny-2018")
    assert store.versions() == ("tiny-2016",)


def test_without_current_the_newest_text_is_served_and_an_empty_store_says_so(fleet: Fleet, tmp_path: Path) -> None:
    (tmp_path / "store" / "CURRENT").unlink()
    assert fleet.machine(0).default_version() == "tiny-2018"
    with pytest.raises(NoIndexes, match="openbook index push VERSION file://"):
        remote(f"file://{tmp_path}/nothing", tmp_path / "none").default_version()


def test_no_secret_of_an_address_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(Exception, match="holds no user") as refused:
        opened("s3://key:hidden@bucket/prefix", Settings())
    assert "hidden" not in str(refused.value) + caplog.text
