"""The open versions: which one is live, which stay, which go, and that no lease reads a closed snapshot."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.application.live_index import Lease, LiveIndex
from openbook.entities import IndexVersion
from openbook.errors import IndexNotResident, IndexTooLarge, NoLiveIndex
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.soak.books import publish_book
from tests.waiting import PATIENCE_S

VERSIONS = ("v0", "v1", "v2", "v3")


@pytest.fixture(scope="session")
def four(tmp_path_factory: pytest.TempPathFactory) -> IndexStore:
    store = IndexStore(tmp_path_factory.mktemp("four"))
    for version in VERSIONS:
        publish_book(store, version)
    return store


@pytest.fixture
def live(four: IndexStore, residents: int) -> Iterator[LiveIndex]:
    live = LiveIndex(four.open("v0"), residents=residents)
    yield live
    live.close()


def index(version: str, generation: int) -> IndexVersion:
    return IndexVersion(version, generation, None)


def room_for(residents: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("residents", [residents])


def is_open(snapshot: IndexSnapshot) -> bool:
    try:
        snapshot.vectors([0])
    except IndexNotResident:
        return False
    return True


def open_names(live: LiveIndex) -> list[str]:
    return [one.index.version for one in live.residents()]


# --- the live one ------------------------------------------------------------------------------------------


def test_a_lease_held_during_a_swap_keeps_the_old_snapshot_open(live: LiveIndex, four: IndexStore) -> None:
    with live.lease() as first, live.lease() as second:
        live.flip(four.open("v1"))
        assert live.now() == index("v1", 1)
        assert first.index == second.index == index("v0", 0)
        assert is_open(first.snapshot)
        assert [resident.index for resident in live.residents()] == [index("v0", 0), index("v1", 1)]
    assert not is_open(first.snapshot)
    assert open_names(live) == ["v1"]


def test_a_version_that_is_not_open_is_refused(live: LiveIndex) -> None:
    with pytest.raises(IndexNotResident) as raised, live.lease("v1"):
        pass
    assert raised.value.data == {"version": "v1", "resident": "v0"}
    with pytest.raises(IndexNotResident):
        live.check("v1")
    live.check("v0")


def test_nothing_is_live_before_the_first_flip(four: IndexStore) -> None:
    live = LiveIndex()
    assert live.now() is None
    with pytest.raises(NoLiveIndex), live.lease():
        pass
    assert live.flip(four.open("v0")) == 1
    live.close()


# --- residents ---------------------------------------------------------------------------------------------


@room_for(2)
def test_the_version_before_stays_while_there_is_room(live: LiveIndex, four: IndexStore) -> None:
    with live.lease() as before:
        live.flip(four.open("v1"))
        assert [(one.index, one.live, one.retiring) for one in live.residents()] == [
            (index("v0", 1), False, False),
            (index("v1", 1), True, False),
        ]
        with live.lease("v0") as after:
            assert after.index == index("v0", 1)
            # a lease keeps the generation under which it began
            assert before.index == index("v0", 0)
            assert before.snapshot is after.snapshot
    live.flip(four.open("v2"))
    assert open_names(live) == ["v1", "v2"]


@room_for(3)
def test_the_one_least_recently_leased_goes(live: LiveIndex, four: IndexStore) -> None:
    live.add_resident(four.open("v1"))
    live.add_resident(four.open("v2"))
    with live.lease("v1"), live.lease():
        pass
    live.add_resident(four.open("v3"))
    assert open_names(live) == ["v0", "v1", "v3"]


@room_for(2)
def test_the_version_before_stays_although_no_lease_was_on_it(live: LiveIndex, four: IndexStore) -> None:
    live.add_resident(four.open("v1"))
    with live.lease("v1"):
        pass
    live.flip(four.open("v2"))
    assert open_names(live) == ["v0", "v2"]


# --- retiring and restoring --------------------------------------------------------------------------------


@room_for(4)
def test_retiring_residents_spares_the_live_one(live: LiveIndex, four: IndexStore) -> None:
    for version in ("v1", "v2"):
        live.add_resident(four.open(version))
    live.retire_residents("v0")
    live.retire_residents("v3")
    assert open_names(live) == ["v0", "v1", "v2"]
    with live.lease("v1"):
        live.retire_residents("v1")
        assert open_names(live) == ["v0", "v1", "v2"]
        assert not live.resident("v1")
        with pytest.raises(IndexNotResident):
            live.check("v1")
    assert open_names(live) == ["v0", "v2"]
    live.retire_residents()
    assert open_names(live) == ["v0"]


@room_for(2)
def test_a_drain_ends_with_the_last_lease_on_any_version(live: LiveIndex, four: IndexStore) -> None:
    with live.lease("v0"):
        live.add_resident(four.open("v1"))
        with live.lease("v1"):
            live.retire_residents("v1")
            live.retire_all("It is being replaced.")
            assert live.now() is None
            with pytest.raises(NoLiveIndex, match=r"It is being replaced\."), live.lease():
                pass
        assert not live.drained(within_s=0.01)
    assert live.drained(within_s=0)


def test_a_drain_waits_until_the_files_are_closed(live: LiveIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    close = IndexSnapshot.close
    seen = []

    def slowly(self: IndexSnapshot) -> None:
        seen.append(live.drained(within_s=0))
        close(self)

    monkeypatch.setattr(IndexSnapshot, "close", slowly)
    live.retire_all("")
    assert seen == [False]
    assert live.drained(within_s=0)


# --- whatever happens --------------------------------------------------------------------------------------


STEPS = st.one_of(
    st.tuples(st.just("lease"), st.sampled_from((None, *VERSIONS))),
    st.tuples(st.just("end"), st.integers(0, 7)),
    st.tuples(st.sampled_from(("flip", "flip resident", "add", "retire", "restore opened")), st.sampled_from(VERSIONS)),
    st.tuples(st.sampled_from(("retire residents", "retire all", "restore", "close")), st.none()),
)


@settings(max_examples=150)
@given(limit=st.integers(1, 3), steps=st.lists(STEPS, max_size=40))
def test_whatever_happens_leases_are_on_open_snapshots_and_each_closes_once(
    four: IndexStore, limit: int, steps: list[tuple[str, object]]
) -> None:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as ending:
        closed: Counter[int] = Counter()
        close = IndexSnapshot.close
        patch.setattr(IndexSnapshot, "close", lambda self: (closed.update([id(self)]), close(self))[1])
        opened: list[IndexSnapshot] = []

        def open_(version: object) -> IndexSnapshot:
            opened.append(four.open(str(version)))
            return opened[-1]

        live = LiveIndex(open_("v0"), residents=limit)
        held: list[tuple[AbstractContextManager[Lease], Lease]] = []
        flips = 0
        for what, which in steps:
            match what:
                case "lease":
                    lease = live.lease(which)  # type: ignore[arg-type]
                    try:
                        held.append((lease, lease.__enter__()))
                    except (NoLiveIndex, IndexNotResident):
                        assert which is None or not live.resident(str(which))
                case "end" if held:
                    held.pop(int(str(which)) % len(held))[0].__exit__(None, None, None)
                case "flip":
                    flips += 1
                    assert live.flip(open_(which)) == flips
                case "flip resident" if live.resident(str(which)):
                    with live.lease(str(which)) as resident:
                        flips += 1
                        assert live.flip(resident.snapshot) == flips
                case "add":
                    snapshot = open_(which)
                    try:
                        live.add_resident(snapshot)
                    except IndexTooLarge:
                        snapshot.close()
                case "retire":
                    live.retire_residents(str(which))
                case "retire residents":
                    live.retire_residents()
                case "retire all":
                    live.retire_all("")
                case "restore":
                    live.restore()
                case "restore opened":
                    live.restore(open_(which))
                case "close":
                    live.close()

            residents = live.residents()
            staying = [one for one in residents if not one.retiring]
            assert len(staying) <= max(limit, 1)
            assert len({one.index.version for one in staying}) == len(staying)
            assert all(one.leases for one in residents if one.retiring)
            assert sum(one.leases for one in residents) == len(held)
            now = live.now()
            assert [one.index for one in staying if one.live] == ([now] if now is not None else [])
            assert now is None or now.generation == flips
            for _, given_lease in held:
                assert is_open(given_lease.snapshot)
                assert given_lease.snapshot.info.version == given_lease.index.version
            assert sum(is_open(snapshot) for snapshot in opened) == len(residents)
            assert all(closed[id(snapshot)] == (not is_open(snapshot)) for snapshot in opened)
        for lease, _ in held:
            ending.push(lease)
        live.close()
        ending.close()
        assert all(closed[id(snapshot)] == 1 for snapshot in opened)
        assert live.residents() == ()


@pytest.mark.parametrize("residents", [1, 2])
def test_threads_that_lease_during_flips_never_read_a_closed_snapshot(
    live: LiveIndex, four: IndexStore, residents: int
) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []
    read: Counter[str] = Counter()

    def ask(version: str | None) -> None:
        try:
            while not stop.is_set():
                try:
                    with live.lease(version) as lease:
                        assert version in (None, lease.index.version)
                        assert lease.snapshot.info.version == lease.index.version
                        assert is_open(lease.snapshot)
                        read[lease.index.version] += 1
                except IndexNotResident:
                    assert version is not None
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=ask, args=(version,)) for version in (None, *VERSIONS)]
    for thread in threads:
        thread.start()
    for swap in range(60):
        live.flip(four.open(VERSIONS[swap % 4]))
        if residents > 1:
            live.add_resident(four.open(VERSIONS[(swap + 2) % 4]))
    stop.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert failures == []
    assert set(read) == set(VERSIONS)
    assert len(live.residents()) == residents
    assert live.now() == index("v3", 60)
