import threading

import pytest

from openbook.application.live_index import LiveIndex
from openbook.entities import IndexVersion
from openbook.errors import IndexNotResident, NoLiveIndex
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot

OLD = IndexVersion("tiny-2016", 0, "2016-12-21")
NEW = IndexVersion("tiny-2018", 1, "2018-12-20")


def is_open(snapshot: IndexSnapshot) -> bool:
    try:
        snapshot.vectors([0])
    except IndexNotResident:
        return False
    return True


def test_a_lease_names_the_version_that_it_reads(live: LiveIndex) -> None:
    with live.lease() as lease:
        assert lease.index == OLD
        assert lease.snapshot.info.version == "tiny-2016"


def test_a_flip_raises_the_generation_by_one_each_time(live: LiveIndex, store: IndexStore) -> None:
    assert [live.flip(store.open(version)) for version in ("tiny-2018", "tiny-2016", "tiny-2016")] == [1, 2, 3]
    assert live.now() == IndexVersion("tiny-2016", 3, "2016-12-21")


def test_a_lease_held_during_a_swap_keeps_the_old_snapshot_open(live: LiveIndex, store: IndexStore) -> None:
    with live.lease() as first, live.lease() as second:
        live.flip(store.open("tiny-2018"))
        assert live.now() == NEW
        assert first.index == second.index == OLD
        assert is_open(first.snapshot)
        assert [resident.index for resident in live.residents()] == [OLD, NEW]
    assert not is_open(first.snapshot)
    assert [resident.index for resident in live.residents()] == [NEW]


def test_a_snapshot_that_nobody_reads_closes_when_it_is_replaced(live: LiveIndex, store: IndexStore) -> None:
    with live.lease() as lease:
        old = lease.snapshot
    assert is_open(old)
    live.flip(store.open("tiny-2018"))
    assert not is_open(old)


def test_whichever_thread_ends_the_last_lease_closes_the_snapshot(live: LiveIndex, store: IndexStore) -> None:
    leased, go_on = threading.Event(), threading.Event()
    seen = []

    def read() -> None:
        with live.lease() as lease:
            leased.set()
            go_on.wait(10)
            seen.append((lease.snapshot, is_open(lease.snapshot)))

    thread = threading.Thread(target=read)
    thread.start()
    assert leased.wait(10)
    live.flip(store.open("tiny-2018"))
    go_on.set()
    thread.join(10)
    [(snapshot, was_open)] = seen
    assert was_open
    assert not is_open(snapshot)


def test_a_question_that_fails_gives_its_lease_back(live: LiveIndex, store: IndexStore) -> None:
    read = []

    def fail() -> None:
        with live.lease() as lease:
            read.append(lease.snapshot)
            live.flip(store.open("tiny-2018"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not is_open(read[0])


def test_a_pinned_version_that_is_not_live_is_refused(live: LiveIndex) -> None:
    with pytest.raises(IndexNotResident) as raised, live.lease("tiny-2018"):
        pass
    assert raised.value.data == {"version": "tiny-2018", "resident": "tiny-2016"}
    with pytest.raises(IndexNotResident):
        live.check("tiny-2018")
    live.check("tiny-2016")
    with live.lease("tiny-2016") as lease:
        assert lease.index == OLD


def test_an_index_that_was_let_go_is_missed_with_the_reason(live: LiveIndex) -> None:
    drained = live.retire_all("It is being replaced.")
    assert drained is not None
    assert drained.is_set()
    assert live.now() is None
    with pytest.raises(NoLiveIndex, match=r"It is being replaced\."), live.lease():
        pass


def test_letting_go_is_over_when_the_last_reader_has_left(live: LiveIndex) -> None:
    with live.lease():
        drained = live.retire_all("It is being replaced.")
        assert drained is not None
        assert not drained.is_set()
    assert drained.is_set()


def test_an_index_that_comes_back_has_the_generation_that_it_had(live: LiveIndex, store: IndexStore) -> None:
    live.flip(store.open("tiny-2018"))
    live.retire_all("")
    live.restore(store.open("tiny-2018"))
    assert live.now() == NEW


def test_closing_closes_what_is_live(live: LiveIndex) -> None:
    with live.lease() as lease:
        pass
    live.close()
    live.close()
    assert not is_open(lease.snapshot)
    with pytest.raises(NoLiveIndex, match="shutting down"), live.lease():
        pass


def test_nothing_is_live_before_the_first_flip(store: IndexStore) -> None:
    live = LiveIndex()
    assert live.now() is None
    with pytest.raises(NoLiveIndex), live.lease():
        pass
    assert live.flip(store.open("tiny-2016")) == 1
    live.close()


def test_leases_taken_and_ended_in_many_threads_during_flips_leave_one_snapshot_open(
    live: LiveIndex, store: IndexStore
) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def read() -> None:
        try:
            while not stop.is_set():
                with live.lease() as lease:
                    assert lease.snapshot.info.version == lease.index.version
                    assert is_open(lease.snapshot)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for swap in range(100):
        live.flip(store.open(("tiny-2018", "tiny-2016")[swap % 2]))
    stop.set()
    for thread in threads:
        thread.join(10)
    assert failures == []
    assert [resident.index for resident in live.residents()] == [IndexVersion("tiny-2016", 100, "2016-12-21")]
