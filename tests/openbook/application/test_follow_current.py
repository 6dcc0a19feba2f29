"""Replicas over one folder: what one makes current becomes live in the other, and what cannot be does no harm."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from openbook.application.follow_current import FollowCurrent, FollowProblem
from openbook.errors import OpenbookError
from openbook.storage.current import NO_CURRENT, CurrentMark
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.indexes import publish_tiny, tiny_passages, tiny_vectors
from tests.fixtures.replicas import Replica, Start
from tests.openbook.application.conftest import samples
from tests.waiting import PATIENCE_S, until

# The thread looks so often, or never: then a test calls `look`.
EVERY_S, NEVER_S = 0.01, 3600.0
FAILURES = 'openbook_current_follow_failures_total{code="index_corrupt"}'


@pytest.fixture
def start(start: Start) -> Start:
    return partial(start, pauses_s=(0.02, 0.04))


def look(*replicas: Replica, times: int = 3) -> None:
    for _ in range(times):
        for replica in replicas:
            assert replica.follower is not None
            replica.follower.look()


def problem(replica: Replica) -> FollowProblem | None:
    assert replica.follower is not None
    return replica.follower.problem()


def break_version(folder: Path, version: str) -> bytes:
    file = folder / version / "passages.arrow"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    return content


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse(self: IndexStore, version: str, *, since: object = None) -> CurrentMark:
        raise OSError(28, "No space left on device")

    return lambda: monkeypatch.setattr(IndexStore, "set_current", refuse)


def test_a_swap_on_one_reaches_the_other(start: Start) -> None:
    one, other = (start(residents=2, follow_every_s=EVERY_S) for _ in range(2))
    one.swap_index.begin("tiny-2018", actor="ann").result(PATIENCE_S)
    until(lambda: other.version() == "tiny-2018" and other.swap_index.progress().state == "done")
    other.swap_index.rollback(actor="bob").result(PATIENCE_S)
    until(lambda: one.version() == "tiny-2016" and one.swap_index.progress().state == "done")
    assert (one.version(), other.version(), one.store.current()) == ("tiny-2016", "tiny-2016", "tiny-2016")
    found = [(record.replica, record.actor, record.version) for record in one.history.last(9)]
    assert sorted(found) == [
        ("replica-0", "ann", "tiny-2018"),
        ("replica-0", "current", "tiny-2016"),
        ("replica-1", "bob", "tiny-2016"),
        ("replica-1", "current", "tiny-2018"),
    ]
    assert problem(one) is problem(other) is None


def test_following_does_not_write_current(start: Start) -> None:
    replica = start(follow_every_s=NEVER_S)
    mark = replica.store.set_current("tiny-2018")
    look(replica)
    assert (replica.version(), replica.swap_index.progress().actor) == ("tiny-2018", "current")
    assert replica.store.current_mark() == mark
    assert samples(replica.telemetry)["openbook_following_ok"] == 1


def test_what_differs_from_the_start_is_not_followed_until_it_changes(start: Start) -> None:
    """A service that was told which version to serve."""
    replica = start("tiny-2018", follow_every_s=NEVER_S)
    look(replica)
    assert replica.version() == "tiny-2018"
    replica.store.set_current("tiny-2016")
    look(replica)
    assert replica.version() == "tiny-2016"


def test_a_change_while_the_service_started_is_followed(start: Start, indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    seen = store.current_mark()
    store.set_current("tiny-2018")
    replica = start("tiny-2016", follow_every_s=NEVER_S, seen=seen)
    look(replica)
    assert replica.version() == "tiny-2018"


def test_a_first_current_is_followed_and_one_that_goes_is_not_missed(start: Start, indexes_folder: Path) -> None:
    (indexes_folder / "CURRENT").unlink()
    replica = start("tiny-2016", follow_every_s=NEVER_S, seen=NO_CURRENT)
    replica.store.set_current("tiny-2018")
    look(replica)
    assert replica.version() == "tiny-2018"
    (indexes_folder / "CURRENT").unlink()
    look(replica)
    assert (replica.version(), problem(replica)) == ("tiny-2018", None)


@pytest.mark.parametrize("durable_before", [False, True])
def test_a_swap_that_was_not_durable_stands(start: Start, full_disk: Callable[[], None], durable_before: bool) -> None:
    """Also where the first look after it finds a CURRENT that is new to it, and that this service wrote itself."""
    replica = start("tiny-2018" if durable_before else "tiny-2016", follow_every_s=NEVER_S)
    if durable_before:
        replica.swap_index.begin("tiny-2016").result(PATIENCE_S)
    full_disk()
    assert not replica.swap_index.begin("tiny-2018").result(PATIENCE_S).durable
    look(replica)
    assert (replica.version(), replica.store.current()) == ("tiny-2018", "tiny-2016")


def test_a_version_read_from_current_does_not_undo_a_newer_swap(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    replica, other = start("tiny-2018", follow_every_s=NEVER_S), start()
    other.swap_index.begin("tiny-2016").result(PATIENCE_S)
    serves = replica.swap_index.serves

    def swap_meanwhile(version: str) -> bool:
        found = serves(version)
        monkeypatch.undo()
        replica.swap_index.begin("tiny-2018", actor="ann").result(PATIENCE_S)
        return found

    monkeypatch.setattr(replica.swap_index, "serves", swap_meanwhile)
    look(replica)
    assert replica.version() == replica.store.current() == "tiny-2018"
    # what was not followed is not told of
    assert (replica.swap_index.progress().state, replica.swap_index.progress().actor) == ("done", "ann")
    assert [record.actor for record in replica.history.last(9)] == ["ann", ""]
    assert problem(replica) is None


@pytest.mark.parametrize("what", ["broken", "unknown", "no name", "garbage"])
def test_a_current_that_cannot_be_served_leaves_what_is_live_and_says_so(
    start: Start, indexes_folder: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    replica = start(follow_every_s=NEVER_S)
    text = {"broken": "tiny-2018\n", "unknown": "tiny-1999\n", "no name": "../tiny-2018\n", "garbage": "\0\xff"}[what]
    if what == "broken":
        break_version(indexes_folder, "tiny-2018")
    (indexes_folder / "CURRENT").write_text(text, encoding="utf-8")
    look(replica, times=1)
    found = problem(replica)
    assert found is not None
    code = "index_corrupt" if what == "broken" else "unknown_index"
    assert (found.wanted, found.code) == (text.strip(), code)
    assert found.since.endswith("+00:00")
    assert replica.version() == "tiny-2016"
    counted = samples(replica.telemetry)
    assert counted["openbook_following_ok"] == 0
    assert counted[f'openbook_current_follow_failures_total{{code="{code}"}}'] == 1
    look(replica)
    told = [one for one in caplog.records if one.name == "openbook.application.follow_current"]
    assert len(told) == 1
    assert "which cannot be served" in told[0].message
    replica.store.set_current("tiny-2016")
    look(replica)
    assert problem(replica) is None
    assert samples(replica.telemetry)["openbook_following_ok"] == 1


def test_a_broken_version_is_tried_again_and_served_once_it_is_mended(start: Start, indexes_folder: Path) -> None:
    replica = start(follow_every_s=EVERY_S)
    content = break_version(indexes_folder, "tiny-2018")
    replica.store.set_current("tiny-2018")
    until(lambda: samples(replica.telemetry).get(FAILURES, 0) >= 3)
    assert problem(replica) is not None
    # tried three times, told once
    assert [record.outcome for record in replica.history.last(9)] == ["index_corrupt"]
    assert samples(replica.telemetry)['openbook_swaps_total{outcome="index_corrupt"}'] == 1
    (indexes_folder / "tiny-2018" / "passages.arrow").write_bytes(content)
    until(lambda: replica.version() == "tiny-2018" and problem(replica) is None)


def test_an_unforeseen_error_is_not_tried_again_at_every_look(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fail(self: IndexSnapshot, report: object = None) -> None:
        tried.append(self.info.version)
        raise MemoryError

    monkeypatch.setattr(IndexSnapshot, "warm", fail)
    replica = start(follow_every_s=NEVER_S, pauses_s=(3600.0, 3600.0))
    replica.store.set_current("tiny-2018")
    look(replica)
    assert tried == ["tiny-2018"]
    found = problem(replica)
    assert found is not None
    assert (found.wanted, found.code) == ("tiny-2018", OpenbookError.code)
    assert len(replica.history.last(9)) == 1


def test_a_version_that_was_published_again_and_swapped_reaches_the_other(start: Start) -> None:
    one, other = start(follow_every_s=NEVER_S), start(follow_every_s=NEVER_S)
    newer = tiny_passages("tiny-2018")
    publish_tiny(one.store, "tiny-2016", passages=newer, vectors=tiny_vectors(newer), replace=True)
    one.swap_index.begin("tiny-2016").result(PATIENCE_S)
    look(one, other)
    for replica in (one, other):
        with replica.live.lease() as lease:
            assert lease.snapshot.passages([7])[0].text == newer[7].text


def test_a_current_that_cannot_be_read_is_told_and_comes_back(start: Start, indexes_folder: Path) -> None:
    replica = start(follow_every_s=NEVER_S)
    (indexes_folder / "CURRENT").unlink()
    (indexes_folder / "CURRENT").mkdir()
    look(replica)
    found = problem(replica)
    assert found is not None
    assert (found.wanted, found.code) == ("CURRENT", "index_corrupt")
    (indexes_folder / "CURRENT").rmdir()
    replica.store.set_current("tiny-2018")
    look(replica)
    assert (replica.version(), problem(replica)) == ("tiny-2018", None)


@pytest.mark.parametrize("how", ["unreadable", "gone"])
def test_a_folder_that_comes_back_as_it_was_is_no_change(
    start: Start, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A replica that was started on another version than CURRENT's, or whose swap was not durable, stays on it."""
    looks: list[None] = []
    look_once = FollowCurrent.look

    def counted(self: FollowCurrent) -> None:
        try:
            look_once(self)
        finally:
            looks.append(None)

    def look_again() -> None:
        before = len(looks)
        # one may have begun before
        until(lambda: len(looks) >= before + 2)

    monkeypatch.setattr(FollowCurrent, "look", counted)
    replica = start("tiny-2018", follow_every_s=EVERY_S)
    elsewhere = indexes_folder.with_name("elsewhere")
    indexes_folder.rename(elsewhere)
    if how == "unreadable":
        indexes_folder.touch()
        until(lambda: problem(replica))
        indexes_folder.unlink()
    look_again()
    elsewhere.rename(indexes_folder)
    until(lambda: problem(replica) is None)
    look_again()
    assert (replica.store.current(), replica.version()) == ("tiny-2016", "tiny-2018")
