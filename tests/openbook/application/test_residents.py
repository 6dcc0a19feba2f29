"""Several versions open at once: which stay, which go, and that nobody reads what has gone."""

import threading
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.application.live_index import Lease, LiveIndex
from openbook.entities import IndexVersion
from openbook.errors import IndexNotResident, NoLiveIndex, ResidentsLimited
from openbook.indexing.publishing import publish
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.indexes import publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.application.test_live_index import is_open

VERSIONS = ("v0", "v1", "v2", "v3")


@pytest.fixture(scope="session")
def four_versions(tmp_path_factory: pytest.TempPathFactory) -> IndexStore:
    store = IndexStore(tmp_path_factory.mktemp("four"))
    passages = tiny_passages("tiny-2016")
    for version in VERSIONS:
        publish(
            store,
            version,
            vectors=tiny_vectors(passages),
            passages=passages,
            index_type="flat",
            encoder_name="tiny-encoder",
            encoder_fingerprint="tiny-encoder",
        )
    return store


def open_names(live: LiveIndex) -> list[str]:
    return [one.index.version for one in live.residents()]


def test_the_version_before_stays_while_there_is_room(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=2)
    live.flip(four_versions.open("v1"))
    assert [(one.index, one.live, one.retiring) for one in live.residents()] == [
        (IndexVersion("v0", 1, None), False, False),
        (IndexVersion("v1", 1, None), True, False),
    ]
    with live.lease("v0") as lease:
        assert lease.index == IndexVersion("v0", 1, None)
        assert lease.snapshot.passages([0])
    with live.lease() as lease:
        assert lease.index.version == "v1"
    live.flip(four_versions.open("v2"))
    assert open_names(live) == ["v1", "v2"]
    live.close()


def test_the_one_least_recently_leased_goes(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=3)
    live.add_resident(four_versions.open("v1"))
    live.add_resident(four_versions.open("v2"))
    with live.lease("v1"), live.lease():
        pass
    live.add_resident(four_versions.open("v3"))
    assert open_names(live) == ["v0", "v1", "v3"]
    live.close()


def test_the_version_before_stays_though_nobody_asked_it(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=2)
    live.add_resident(four_versions.open("v1"))
    with live.lease("v1"):
        pass
    live.flip(four_versions.open("v2"))
    assert open_names(live) == ["v0", "v2"]
    live.close()


def test_a_lease_begun_before_a_flip_keeps_its_generation(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=2)
    with live.lease() as before:
        live.flip(four_versions.open("v1"))
        with live.lease("v0") as after:
            assert (before.index.generation, after.index.generation) == (0, 1)
            assert before.snapshot is after.snapshot
    live.close()


def test_a_resident_becomes_live_without_being_opened_again(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=2)
    kept = four_versions.open("v1")
    live.add_resident(kept)
    with live.lease("v1"):
        assert live.flip(kept) == 1
    assert live.now() == IndexVersion("v1", 1, None)
    assert len(live.residents()) == 2
    with live.lease() as lease:
        assert lease.snapshot is kept
    live.close()


def test_a_version_that_is_opened_again_takes_the_place_of_its_older_opening(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=4)
    first, second = four_versions.open("v1"), four_versions.open("v1")
    live.add_resident(first)
    with live.lease("v1") as lease:
        live.add_resident(second)
        assert lease.snapshot is first
        with live.lease("v1") as newer:
            assert newer.snapshot is second
        assert is_open(first)
    assert not is_open(first)
    assert open_names(live) == ["v0", "v1"]
    live.close()


def test_keeping_the_live_version_again_changes_nothing(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=4)
    again = four_versions.open("v0")
    live.add_resident(again)
    assert not is_open(again)
    assert [(one.index.version, one.live) for one in live.residents()] == [("v0", True)]
    live.close()


def test_nothing_is_kept_where_the_live_one_alone_may_be_open(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"))
    with pytest.raises(ResidentsLimited, match="OPENBOOK_RESIDENTS lets 1 be open") as raised:
        live.add_resident(four_versions.open("v1"))
    assert raised.value.code == "index_too_large"
    live.close()


def test_eviction_spares_the_live_one(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=4)
    for version in ("v1", "v2"):
        live.add_resident(four_versions.open(version))
    assert live.retire_residents("v0") is None
    assert live.retire_residents("v3") is None
    with live.lease("v1"):
        drain = live.retire_residents("v1")
        assert drain is not None
        assert not drain.wait(0.01)
        assert not live.resident("v1")
        with pytest.raises(IndexNotResident):
            live.check("v1")
    assert drain.wait(0)
    assert live.retire_residents() is not None
    assert live.retire_residents() is None
    assert open_names(live) == ["v0"]
    live.close()


def test_letting_go_waits_for_residents_and_for_what_was_retiring_already(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=2)
    with live.lease("v0"):
        live.add_resident(four_versions.open("v1"))
        with live.lease("v1"):
            live.retire_residents("v1")
            drain = live.retire_all("")
            assert drain is not None
        assert not drain.is_set()
    assert drain.is_set()


def test_what_is_still_read_can_be_taken_back(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=2)
    live.flip(four_versions.open("v1"))
    with live.lease():
        live.retire_all("It is being replaced.")
        assert live.now() is None
        assert live.restore()
        assert live.now() == IndexVersion("v1", 1, None)
    with live.lease() as lease:
        assert is_open(lease.snapshot)
    live.retire_all("")
    assert not live.restore()
    with pytest.raises(NoLiveIndex):
        live.check()


def test_leases_on_several_versions_are_taken_together_or_not_at_all(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=2)
    live.add_resident(four_versions.open("v1"))
    with live.leases(("v1", "v0")) as leases:
        assert [lease.index.version for lease in leases] == ["v1", "v0"]
    with pytest.raises(IndexNotResident), live.leases(("v1", "v2")):
        pass
    assert {one.leases for one in live.residents()} == {0}
    live.close()


STEPS = st.one_of(
    st.tuples(st.just("lease"), st.sampled_from((None, *VERSIONS))),
    st.tuples(st.just("end"), st.integers(0, 7)),
    st.tuples(st.sampled_from(("flip", "flip resident", "keep", "evict", "come back")), st.sampled_from(VERSIONS)),
    st.tuples(st.sampled_from(("evict all", "let go", "take back", "close")), st.none()),
)


@settings(deadline=None, max_examples=150)
@given(limit=st.integers(1, 3), steps=st.lists(STEPS, max_size=40))
def test_whatever_happens_leases_are_on_open_snapshots_and_each_closes_once(
    four_versions: IndexStore, limit: int, steps: list[tuple[str, object]]
) -> None:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as ending:
        closed: Counter[int] = Counter()
        close = IndexSnapshot.close
        patch.setattr(IndexSnapshot, "close", lambda self: (closed.update([id(self)]), close(self))[1])
        opened: list[IndexSnapshot] = []

        def open_(version: object) -> IndexSnapshot:
            opened.append(four_versions.open(str(version)))
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
                case "keep":
                    snapshot = open_(which)
                    try:
                        live.add_resident(snapshot)
                    except ResidentsLimited:
                        snapshot.close()
                case "evict":
                    live.retire_residents(str(which))
                case "evict all":
                    live.retire_residents()
                case "let go":
                    live.retire_all("")
                case "take back":
                    live.restore()
                case "come back":
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


def test_threads_that_lease_any_version_during_flips_never_read_a_closed_one(four_versions: IndexStore) -> None:
    live = LiveIndex(four_versions.open("v0"), residents=2)
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
        live.flip(four_versions.open(VERSIONS[swap % 4]))
        live.add_resident(four_versions.open(VERSIONS[(swap + 2) % 4]))
    stop.set()
    for thread in threads:
        thread.join(10)
    assert failures == []
    assert set(read) == set(VERSIONS)
    assert len(live.residents()) == 2
    live.close()


def test_a_folder_of_versions_that_were_open_is_mapped_no_more(tmp_path: Path) -> None:
    from tests.openbook.storage.mappings import unmapped_soon

    store = IndexStore(tmp_path)
    for version in ("tiny-2016", "tiny-2018"):
        publish_tiny(store, version)
    live = LiveIndex(store.open("tiny-2016"), residents=3)
    live.add_resident(store.open("tiny-2018"))
    live.close()
    assert unmapped_soon(tmp_path)
