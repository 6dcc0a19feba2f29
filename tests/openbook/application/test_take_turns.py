"""Replicas that let their index go before they open another one: one after the other, whatever goes wrong."""

import threading
import time
from pathlib import Path

import pytest

from openbook.application import follow_current, take_turns
from openbook.errors import CanaryFailed, NoLiveIndex, ShuttingDown, StoreUnreachable, TurnRefused
from openbook.storage import store_turn
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from openbook.storage.store_turn import StoreTurn
from tests.fixtures.replicas import Replica, Start
from tests.fixtures.stores import push_all, remote
from tests.openbook.application.conftest import NEW, OLD, TIMEOUT, soon

EVERY_S = 0.01
NEW_VERSION = "tiny-2018"


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take_turns, "LOOK_S", 0.005)
    monkeypatch.setattr(take_turns, "STEP_S", 0.005)
    monkeypatch.setattr(follow_current, "FIRST_PAUSE_S", 0.02)


def stage(replica: Replica) -> str | None:
    return replica.swap_index.progress().stage


@pytest.fixture
def without_index(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Which replicas were without an index at once, each time that one let go; each warm-up takes a while."""
    away: set[str] = set()
    seen: list[set[str]] = []
    warm = IndexSnapshot.warm

    def slowly(self: IndexSnapshot, *arguments: object) -> None:
        name = threading.current_thread().name + str(threading.get_ident())
        away.add(name)
        seen.append(set(away))
        time.sleep(0.02)
        away.remove(name)
        warm(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(IndexSnapshot, "warm", slowly)
    return seen


def test_a_replica_serves_on_until_the_one_that_let_go_serves_again(start: Start) -> None:
    one, other = start(rest_s=0.0), start(rest_s=0.0)
    with one.live.lease():
        first = one.swap_index.begin(NEW_VERSION, policy="resource")
        assert soon(lambda: stage(one) == "drain")
        second = other.swap_index.begin(NEW_VERSION, policy="resource")
        assert soon(lambda: stage(other) == "turn")
        time.sleep(0.05)
        assert (stage(other), other.live.now()) == ("turn", OLD)
        with pytest.raises(NoLiveIndex):
            one.live.check()
    assert list(first.result(TIMEOUT).seconds)[:4] == ["verify", "turn", "open", "drain"]
    assert second.result(TIMEOUT).seconds["turn"] >= 0.05
    assert (one.live.now(), other.live.now()) == (NEW, NEW)


def test_the_next_one_waits_until_proxies_have_seen_the_first_one_ready(start: Start) -> None:
    one, other = start(rest_s=0.1), start(rest_s=0.0)
    one.swap_index.begin(NEW_VERSION, policy="resource").result(TIMEOUT)
    began = time.monotonic()
    other.swap_index.begin(NEW_VERSION, policy="resource").result(TIMEOUT)
    assert time.monotonic() - began > 0.05


def test_a_replica_that_swaps_again_while_it_has_the_turn_does_not_wait(start: Start, indexes_folder: Path) -> None:
    one = start(rest_s=100.0)
    for version in (NEW_VERSION, "tiny-2016", NEW_VERSION):
        one.swap_index.begin(version, policy="resource").result(TIMEOUT)
        assert IndexStore(indexes_folder).turn("other:8000").take() == "replica-0"


@pytest.mark.parametrize("of", ["folder", "store"])
def test_of_six_replicas_that_follow_current_one_at_a_time_lets_go(
    of: str, start: Start, indexes_folder: Path, tmp_path: Path, without_index: list[set[str]]
) -> None:
    url = f"file://{tmp_path}/store"
    objects = push_all(url, indexes_folder) if of == "store" else None
    shared = IndexStore(indexes_folder)
    replicas = [
        start(
            store=shared if objects is None else remote(url, tmp_path / f"cache-{n}"),
            follow_every_s=EVERY_S,
            policy="resource",
            rest_s=0.001,
        )
        for n in range(6)
    ]
    if objects is None:
        shared.set_current(NEW_VERSION)
    else:
        objects.write_current(NEW_VERSION, objects.current_mark())
    assert soon(lambda: all(replica.version() == NEW_VERSION for replica in replicas))
    assert len(without_index) == 6
    assert {len(away) for away in without_index} == {1}


def test_a_replica_that_waits_gives_up_when_current_leads_back(start: Start, indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    holder = store.turn("somebody:8000")
    replica = start(follow_every_s=EVERY_S, policy="resource", rest_s=0.0)
    holder.take()
    store.set_current(NEW_VERSION)
    assert soon(lambda: stage(replica) == "turn")
    store.set_current("tiny-2016")
    assert soon(lambda: replica.swap_index.progress().error == "current_conflict")
    holder.give_back()
    time.sleep(5 * EVERY_S)
    assert (replica.live.now(), replica.history.last(9)) == (OLD, ())
    assert replica.follower is not None
    assert replica.follower.problem() is None
    store.set_current(NEW_VERSION)
    assert soon(lambda: replica.version() == NEW_VERSION)


def test_a_replica_that_is_left_without_an_index_keeps_the_turn(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, other = start(rest_s=0.0), start(rest_s=0.0)
    opened = IndexStore.open

    def fail(self: IndexSnapshot, *_: object) -> None:
        monkeypatch.setattr(IndexStore, "open", lambda *_, **__: (_ for _ in ()).throw(OSError("it is gone")))
        raise CanaryFailed(version=NEW_VERSION, row=1, found=2)

    with monkeypatch.context() as failing:
        failing.setattr(IndexSnapshot, "warm", fail)
        with pytest.raises(CanaryFailed):
            broken.swap_index.begin(NEW_VERSION, policy="resource").result(TIMEOUT)
    monkeypatch.setattr(IndexStore, "open", opened)
    assert broken.live.now() is None
    second = other.swap_index.begin(NEW_VERSION, policy="resource")
    assert soon(lambda: stage(other) == "turn")
    time.sleep(0.05)
    assert (stage(other), other.live.now()) == ("turn", OLD)
    # what has no index to let go needs no turn
    assert "turn" not in broken.swap_index.begin(NEW_VERSION, policy="resource").result(TIMEOUT).seconds
    assert second.result(TIMEOUT).version == NEW_VERSION


def test_only_a_swap_that_lets_go_takes_a_turn(start: Start, indexes_folder: Path) -> None:
    holder = IndexStore(indexes_folder).turn("somebody:8000")
    assert holder.take() is None
    replica = start(rest_s=0.0, residents=2)
    replica.swap_index.begin(NEW_VERSION, policy="availability").result(TIMEOUT)
    # it is a resident now, and nothing has to go first
    assert "turn" not in replica.swap_index.begin("tiny-2016", policy="resource").result(TIMEOUT).seconds


def test_a_service_that_ends_waits_no_longer_and_gives_its_turn_back(start: Start, indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    replica, waiting = start(rest_s=100.0), start(rest_s=0.0)
    replica.swap_index.begin(NEW_VERSION, policy="resource").result(TIMEOUT)
    swap = waiting.swap_index.begin(NEW_VERSION, policy="resource")
    assert soon(lambda: stage(waiting) == "turn")
    waiting.swap_index.close(within_s=0)
    with pytest.raises(ShuttingDown):
        swap.result(TIMEOUT)
    assert waiting.live.now() == OLD
    assert store.turn("third:8000").take() is not None
    replica.swap_index.close()
    assert store.turn("third:8000").take() is None


def test_where_no_turn_can_be_had_the_index_is_not_let_go(start: Start, indexes_folder: Path, tmp_path: Path) -> None:
    replica = start(rest_s=0.0)
    (indexes_folder / ".turn").mkdir()
    with pytest.raises(TurnRefused):
        replica.swap_index.begin(NEW_VERSION, policy="resource").result(TIMEOUT)
    assert replica.live.now() == OLD
    assert [record.outcome for record in replica.history.last(9)] == ["store_unreachable"]


def test_a_turn_that_nobody_keeps_is_taken_after_a_while(
    start: Start, indexes_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/store"
    objects = push_all(url, indexes_folder)
    assert StoreTurn(objects, "dead:8000").take() is None
    monkeypatch.setattr(store_turn, "EXPIRES_S", 0.1)
    replica = start(store=remote(url, tmp_path / "cache"), rest_s=0.0)
    report = replica.swap_index.begin(NEW_VERSION, policy="resource").result(TIMEOUT)
    assert report.durable
    assert report.seconds["turn"] >= 0.1


def test_a_store_that_goes_away_while_a_replica_waits_leaves_its_index_live(
    start: Start, indexes_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"file://{tmp_path}/store"
    assert StoreTurn(push_all(url, indexes_folder), "other:8000").take() is None
    replica = start(store=remote(url, tmp_path / "cache"), rest_s=0.0)
    swap = replica.swap_index.begin(NEW_VERSION, policy="resource")
    assert soon(lambda: stage(replica) == "turn")

    def fail(self: StoreTurn) -> str | None:
        raise StoreUnreachable(url=url, reason="it is away")

    monkeypatch.setattr(StoreTurn, "take", fail)
    with pytest.raises(StoreUnreachable):
        swap.result(TIMEOUT)
    assert replica.live.now() == OLD
