"""Two services over one folder: what one makes current becomes live in the other, and what cannot be does no harm."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from openbook.application import follow_current
from openbook.application.follow_current import FollowCurrent
from openbook.application.live_index import LiveIndex
from openbook.application.swap_index import SwapIndex
from openbook.application.swap_progress import SwapPolicy
from openbook.application.telemetry import Telemetry
from openbook.errors import IndexFileSizeWrong, OpenbookError, SwapInProgress
from openbook.storage.current import NO_CURRENT, CurrentMark
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.indexes import DIMENSION, ENCODER, publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.application.test_telemetry import samples

TIMEOUT = 30
EVERY_S = 0.01


@dataclass
class Replica:
    """A service over the folder, as far as swapping goes."""

    store: IndexStore
    live: LiveIndex
    telemetry: Telemetry
    swap_index: SwapIndex
    follower: FollowCurrent

    def version(self) -> str | None:
        now = self.live.now()
        return now.version if now is not None else None

    def close(self) -> None:
        self.follower.close()
        self.swap_index.close()
        self.live.close()


Start = Callable[..., Replica]


@pytest.fixture
def start(indexes_folder: Path) -> Iterator[Start]:
    """Start a replica on the folder."""
    started: list[Replica] = []

    def start_one(
        version: str | None = None, *, policy: SwapPolicy = "availability", seen: CurrentMark | None = None
    ) -> Replica:
        store, telemetry = IndexStore(indexes_folder), Telemetry()
        live = LiveIndex(store.open(version or store.default_version()), residents=2)
        swap_index = SwapIndex(
            store,
            live,
            telemetry,
            encoder_fingerprint=ENCODER,
            dimension=DIMENSION,
            free_memory=lambda: sys.maxsize,
            history=SwapHistory(indexes_folder),
            replica=f"replica-{len(started)}",
        )
        follower = FollowCurrent(store, live, swap_index, telemetry, every_s=EVERY_S, policy=policy, seen=seen)
        started.append(Replica(store, live, telemetry, swap_index, follower))
        return started[-1]

    yield start_one
    for replica in started:
        replica.close()


def soon(true: Callable[[], object]) -> bool:
    until = time.monotonic() + 10
    while not true() and time.monotonic() < until:
        time.sleep(0.005)
    return bool(true())


def a_few_looks() -> None:
    time.sleep(12 * EVERY_S)


def break_version(folder: Path, version: str) -> bytes:
    file = folder / version / "index.faiss"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    return content


def test_a_swap_on_one_reaches_the_other(start: Start, indexes_folder: Path) -> None:
    one, other = start(), start()
    one.swap_index.begin("tiny-2018", actor="ann").result(TIMEOUT)
    assert soon(lambda: other.version() == "tiny-2018")
    assert soon(lambda: other.swap_index.progress().state == "done")
    other.swap_index.rollback(actor="bob").result(TIMEOUT)
    assert soon(lambda: one.version() == "tiny-2016")
    a_few_looks()
    assert (one.version(), other.version(), one.store.current()) == ("tiny-2016", "tiny-2016", "tiny-2016")
    found = [(record.replica, record.actor, record.version) for record in SwapHistory(indexes_folder).last(9)]
    assert sorted(found) == sorted(
        [
            ("replica-0", "ann", "tiny-2018"),
            ("replica-1", "current", "tiny-2018"),
            ("replica-1", "bob", "tiny-2016"),
            ("replica-0", "current", "tiny-2016"),
        ]
    )
    assert one.follower.problem() is other.follower.problem() is None


def test_following_does_not_write_current(start: Start) -> None:
    replica = start()
    mark = replica.store.set_current("tiny-2018")
    assert soon(lambda: replica.version() == "tiny-2018")
    assert replica.swap_index.progress().actor == "current"
    assert replica.store.current_mark() == mark
    assert samples(replica.telemetry)["openbook_following_ok"] == 1


def test_what_differs_from_the_start_is_not_followed_until_it_changes(start: Start) -> None:
    """A service that was told which version to serve."""
    replica = start("tiny-2018")
    a_few_looks()
    assert replica.version() == "tiny-2018"
    replica.store.set_current("tiny-2016")
    assert soon(lambda: replica.version() == "tiny-2016")


def test_a_change_while_the_service_started_is_followed(start: Start, indexes_folder: Path) -> None:
    store = IndexStore(indexes_folder)
    seen = store.current_mark()
    store.set_current("tiny-2018")
    replica = start("tiny-2016", seen=seen)
    assert soon(lambda: replica.version() == "tiny-2018")


def test_a_current_that_comes_to_be_is_followed_and_one_that_goes_is_not_missed(
    start: Start, indexes_folder: Path
) -> None:
    (indexes_folder / "CURRENT").unlink()
    replica = start("tiny-2016", seen=NO_CURRENT)
    replica.store.set_current("tiny-2018")
    assert soon(lambda: replica.version() == "tiny-2018")
    (indexes_folder / "CURRENT").unlink()
    a_few_looks()
    assert replica.version() == "tiny-2018"
    assert replica.follower.problem() is None


def test_a_swap_that_was_not_durable_stands(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = start()

    def refuse(self: IndexStore, version: str) -> CurrentMark:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexStore, "set_current", refuse)
    assert not replica.swap_index.begin("tiny-2018").result(TIMEOUT).durable
    a_few_looks()
    assert replica.version() == "tiny-2018"
    assert replica.store.current() == "tiny-2016"


def test_a_swap_that_was_not_durable_stands_right_after_one_that_was(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The follower's first look after both finds a CURRENT that is new to it, and that this service wrote itself."""
    monkeypatch.setattr("tests.openbook.application.test_follow_current.EVERY_S", 0.3)
    replica = start("tiny-2018")
    replica.swap_index.begin("tiny-2016").result(TIMEOUT)

    def refuse(self: IndexStore, version: str) -> CurrentMark:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(IndexStore, "set_current", refuse)
    assert not replica.swap_index.begin("tiny-2018").result(TIMEOUT).durable
    time.sleep(0.8)
    assert replica.version() == "tiny-2018"


@pytest.mark.parametrize("what", ["broken", "unknown", "no name", "garbage"])
def test_a_current_that_cannot_be_served_leaves_what_is_live_and_says_so(
    start: Start, indexes_folder: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    replica = start()
    text = {"broken": "tiny-2018\n", "unknown": "tiny-1999\n", "no name": "../tiny-2018\n", "garbage": "\0\xff"}[what]
    if what == "broken":
        break_version(indexes_folder, "tiny-2018")
    (indexes_folder / "CURRENT").write_text(text, encoding="utf-8")
    assert soon(replica.follower.problem)
    problem = replica.follower.problem()
    assert problem is not None
    code = "index_corrupt" if what == "broken" else "unknown_index"
    assert (problem.wanted, problem.code) == (text.strip(), code)
    assert problem.since.endswith("+00:00")
    assert replica.version() == "tiny-2016"
    found = samples(replica.telemetry)
    assert found["openbook_following_ok"] == 0
    assert found[f'openbook_current_follow_failures_total{{code="{code}"}}'] == 1
    a_few_looks()
    told = [one for one in caplog.records if one.name == "openbook.application.follow_current"]
    assert len(told) == 1
    assert "which cannot be served" in told[0].message
    replica.store.set_current("tiny-2016")
    assert soon(lambda: replica.follower.problem() is None)
    assert samples(replica.telemetry)["openbook_following_ok"] == 1


def test_a_broken_version_is_tried_again_and_served_once_it_is_mended(
    start: Start, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_current, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(follow_current, "LONGEST_PAUSE_S", 0.04)
    replica = start()
    content = break_version(indexes_folder, "tiny-2018")
    replica.store.set_current("tiny-2018")
    assert soon(lambda: samples(replica.telemetry).get(FAILURES, 0) >= 3)
    first = replica.follower.problem()
    assert first is not None
    # tried three times, told once
    assert [record.outcome for record in SwapHistory(indexes_folder).last(9)] == ["index_corrupt"]
    assert samples(replica.telemetry)['openbook_swaps_total{outcome="index_corrupt"}'] == 1
    (indexes_folder / "tiny-2018" / "index.faiss").write_bytes(content)
    assert soon(lambda: replica.version() == "tiny-2018")
    assert soon(lambda: replica.follower.problem() is None)


FAILURES = 'openbook_current_follow_failures_total{code="index_corrupt"}'


def test_pauses_grow(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_current, "FIRST_PAUSE_S", 0.05)
    replica = start()
    tried = []

    def fail(self: IndexSnapshot, report: object = None) -> None:
        tried.append(time.monotonic())
        raise IndexFileSizeWrong(version=self.info.version, file="index.faiss", found=1, expected=2)

    monkeypatch.setattr(IndexSnapshot, "warm", fail)
    replica.store.set_current("tiny-2018")
    assert soon(lambda: len(tried) >= 5)
    # each at least so long, however busy the machine is
    pauses = [later - earlier for earlier, later in pairwise(tried)]
    assert all(pause >= least for pause, least in zip(pauses, (0.05, 0.1, 0.2, 0.4), strict=False))


def test_what_nobody_foresaw_is_not_tried_again_at_every_look(
    start: Start, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = start()
    tried = []

    def fail(self: IndexSnapshot, report: object = None) -> None:
        tried.append(self.info.version)
        raise MemoryError

    monkeypatch.setattr(follow_current, "FIRST_PAUSE_S", 3600.0)
    monkeypatch.setattr(IndexSnapshot, "warm", fail)
    replica.store.set_current("tiny-2018")
    assert soon(replica.follower.problem)
    a_few_looks()
    assert tried == ["tiny-2018"]
    problem = replica.follower.problem()
    assert problem is not None
    assert (problem.wanted, problem.code) == ("tiny-2018", OpenbookError.code)
    assert len(SwapHistory(indexes_folder).last(9)) == 1


def test_policy_resource_does_not_take_the_service_away_again_for_a_version_that_failed_late(
    start: Start, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_current, "FIRST_PAUSE_S", 0.01)
    replica = start(policy="resource")
    tried = []

    def fail(self: IndexSnapshot, report: object = None) -> None:
        tried.append(self.info.version)
        raise IndexFileSizeWrong(version=self.info.version, file="index.faiss", found=1, expected=2)

    monkeypatch.setattr(IndexSnapshot, "warm", fail)
    replica.store.set_current("tiny-2018")
    assert soon(replica.follower.problem)
    a_few_looks()
    assert tried == ["tiny-2018"]
    assert replica.version() == "tiny-2016"
    monkeypatch.undo()
    replica.store.set_current("tiny-2018")
    assert soon(lambda: replica.version() == "tiny-2018")


def test_a_version_that_was_published_again_and_swapped_reaches_the_other(start: Start) -> None:
    one, other = start(), start()
    newer = tiny_passages("tiny-2018")
    publish_tiny(one.store, "tiny-2016", passages=newer, vectors=tiny_vectors(newer), replace=True)
    one.swap_index.begin("tiny-2016").result(TIMEOUT)

    def text_of(replica: Replica) -> str:
        with replica.live.lease() as lease:
            return lease.snapshot.passages([7])[0].text

    assert soon(lambda: text_of(other) == newer[7].text)
    assert text_of(one) == newer[7].text


def test_a_change_during_a_swap_is_followed_after_it(start: Start) -> None:
    replica = start("tiny-2016", policy="resource")
    with replica.live.lease():
        swap = replica.swap_index.begin("tiny-2016", policy="resource", verify="checksum")
        replica.store.set_current("tiny-2018")
        a_few_looks()
        assert replica.follower.problem() is None
    swap.result(TIMEOUT)
    a_few_looks()
    # the swap wrote CURRENT last
    assert replica.store.current() == replica.version() == "tiny-2016"


def test_a_folder_that_is_out_of_reach_is_told_and_comes_back(
    start: Start, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_current, "FIRST_PAUSE_S", 0.02)
    replica = start()
    (indexes_folder / "CURRENT").unlink()
    (indexes_folder / "CURRENT").mkdir()
    assert soon(replica.follower.problem)
    problem = replica.follower.problem()
    assert problem is not None
    assert (problem.wanted, problem.code) == ("CURRENT", "index_corrupt")
    (indexes_folder / "CURRENT").rmdir()
    replica.store.set_current("tiny-2018")
    assert soon(lambda: replica.version() == "tiny-2018")
    assert soon(lambda: replica.follower.problem() is None)


def test_many_swaps_on_both_end_on_one_version(start: Start) -> None:
    one, other = start(), start()
    for turn in range(20):
        replica = (one, other)[turn % 2]
        # refused while it follows the other
        with suppress(SwapInProgress):
            replica.swap_index.begin(("tiny-2018", "tiny-2016")[turn // 2 % 2]).result(TIMEOUT)
    assert soon(lambda: one.version() == other.version() == one.store.current())
    a_few_looks()
    assert one.version() == other.version() == one.store.current()
    assert one.follower.problem() is other.follower.problem() is None


def test_closing_ends_the_thread(start: Start) -> None:
    replica = start()
    replica.follower.close()
    replica.follower.close()
    replica.store.set_current("tiny-2018")
    a_few_looks()
    assert replica.version() == "tiny-2016"


@pytest.mark.parametrize("how", ["unreadable", "gone"])
def test_a_folder_that_was_out_of_reach_and_comes_back_as_it_was_is_no_change(
    start: Start, indexes_folder: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A replica that was started on another version than CURRENT's, or whose swap was not durable, stays on it."""
    monkeypatch.setattr(follow_current, "FIRST_PAUSE_S", 0.02)
    replica = start("tiny-2018")
    elsewhere = indexes_folder.with_name("elsewhere")
    indexes_folder.rename(elsewhere)
    if how == "unreadable":
        indexes_folder.touch()
        assert soon(replica.follower.problem)
        indexes_folder.unlink()
    a_few_looks()
    elsewhere.rename(indexes_folder)
    assert soon(lambda: replica.follower.problem() is None)
    a_few_looks()
    assert replica.store.current() == "tiny-2016"
    assert replica.version() == "tiny-2018"
