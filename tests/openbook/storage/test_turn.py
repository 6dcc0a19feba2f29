"""The turn of a folder and of a store: one has it at a time, and who dies with it does not have it for ever."""

import logging
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from openbook.errors import StoreUnreachable, TurnRefused
from openbook.storage import object_store, store_turn
from openbook.storage.current import StoreMark
from openbook.storage.object_store import ObjectStore
from openbook.storage.store_turn import StoreTurn
from openbook.storage.turn import FolderTurn, SwapTurn
from tests.fixtures.stores import Line

Take = Callable[[str], SwapTurn]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the clock of who waits and of who keeps says."""
    now = [1000.0]
    monkeypatch.setattr("openbook.storage.store_turn.time.monotonic", lambda: now[0])
    return now


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(f"file://{tmp_path}/store")


@pytest.mark.parametrize("kind", ["folder", "store"])
def test_one_has_the_turn_until_it_gives_it_back(kind: str, tmp_path: Path, objects: ObjectStore) -> None:
    one, other, third = (
        FolderTurn(tmp_path, name) if kind == "folder" else StoreTurn(objects, name)
        for name in ("one:8000", "other:8000", "third:8000")
    )
    for mine, yours in ((one, other), (other, third), (third, one)):
        assert mine.take() is None
        mine.keep()
        assert yours.take() == mine._name
        yours.give_back()
        assert yours.take() is not None
        mine.give_back()
    assert one.take() is None


def test_the_turn_of_a_folder_ends_with_the_process_that_has_it(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        FolderTurn(tmp_path, "dead:8000").take()
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (tmp_path / ".turn").read_text() == "dead:8000\n"
    assert FolderTurn(tmp_path, "one:8000").take() is None


@pytest.mark.parametrize("broken", ["gone", "a folder", "a link"])
def test_a_folder_that_gives_no_turn_says_why_and_what_to_do(broken: str, tmp_path: Path) -> None:
    if broken == "a folder":
        (tmp_path / ".turn").mkdir()
    if broken == "a link":
        (tmp_path / ".turn").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TurnRefused, match="OPENBOOK_TURN_S=0") as raised:
        FolderTurn(tmp_path / "gone" if broken == "gone" else tmp_path, "one:8000").take()
    assert raised.value.code == "store_unreachable"
    assert str(tmp_path) not in str(raised.value)


def test_a_turn_that_is_kept_does_not_end_and_one_that_is_not_ends(objects: ObjectStore, clock: list[float]) -> None:
    one, other = StoreTurn(objects, "one:8000"), StoreTurn(objects, "other:8000")
    assert one.take() is None
    for _ in range(20):
        clock[0] += store_turn.KEEP_S
        one.keep()
        assert other.take() == "one:8000"
    # another may only count what it has seen itself
    clock[0] += store_turn.EXPIRES_S - 0.1
    assert other.take() == "one:8000"
    assert StoreTurn(objects, "late:8000").take() == "one:8000"
    clock[0] += 0.2
    assert other.take() is None


def test_who_has_lost_the_turn_neither_takes_it_back_nor_gives_it_away(
    objects: ObjectStore, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    one, other = StoreTurn(objects, "one:8000"), StoreTurn(objects, "other:8000")
    one.take()
    assert other.take() == "one:8000"
    clock[0] += store_turn.EXPIRES_S
    assert other.take() is None
    assert "one:8000 has not kept its turn for 30 s" in caplog.text
    for _ in range(2):
        one.keep()
        one.give_back()
        assert StoreTurn(objects, "third:8000").take() == "other:8000"
    assert caplog.text.count("another service has taken the turn") == 1


def test_of_two_that_take_a_free_turn_at_once_one_has_it(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = StoreTurn(objects, "one:8000"), StoreTurn(objects, "other:8000")
    write = ObjectStore.write_turn
    came_between: list[bool] = []

    def slowly(self: ObjectStore, content: bytes, expected: StoreMark | None) -> StoreMark:
        if not came_between:
            came_between.append(True)
            assert other.take() is None
        return write(self, content, expected)

    monkeypatch.setattr(ObjectStore, "write_turn", slowly)
    assert one.take() is not None
    assert one.take() == "other:8000"


def test_a_writing_whose_answer_is_lost_counts(objects: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    one = StoreTurn(objects, "one:8000")
    one.take()
    write = ObjectStore.write_turn
    lost = [True]

    def lose(self: ObjectStore, content: bytes, expected: StoreMark | None) -> StoreMark:
        mark = write(self, content, expected)
        if lost:
            lost.pop()
            raise StoreUnreachable(url=self.url, reason="it hung up")
        return mark

    monkeypatch.setattr(ObjectStore, "write_turn", lose)
    monkeypatch.setattr(store_turn, "KEEP_S", 0.0)
    for _ in range(3):
        one.keep()
    assert StoreTurn(objects, "other:8000").take() == "one:8000"
    one.give_back()
    assert StoreTurn(objects, "other:8000").take() is None


@pytest.mark.slow
def test_a_turn_in_an_s3_store_is_bound_to_what_it_replaces(s3: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(object_store, "LONGEST_PAUSE_S", 0.01)
    objects = ObjectStore("s3://books/indexes")
    one, other = StoreTurn(objects, "one:8000"), StoreTurn(ObjectStore("s3://books/indexes"), "other:8000")
    assert one.take() is None
    assert other.take() == "one:8000"
    s3.refusing = True
    with pytest.raises(StoreUnreachable):
        other.take()
    s3.heal()
    one.give_back()
    assert other.take() is None
    assert one.take() == "other:8000"
