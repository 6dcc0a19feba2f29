"""A version that keeps up with a folder."""

import dataclasses
import datetime
import itertools
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from openbook.cli import index_follow
from openbook.cli.index_follow import CurrentLine, Follower, keep_looking, seconds_of, state_of, stem_of
from openbook.errors import IndexInUse, NoLiveIndex, SettingInvalid, UnknownIndex
from openbook.indexing.index_builder import build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources import open_source
from openbook.storage.index_store import IndexStore
from tests.fixtures.command_line import TOKEN, Run
from tests.fixtures.indexes import ENCODER


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("one", "two", "three"):
        (folder / f"{name}.txt").write_text(f"the text of number {name}")
    return folder


@pytest.fixture
def encoder(tiny_encoder: Path) -> PassageEncoder:
    return PassageEncoder.load(tiny_encoder)


@pytest.fixture
def store(tmp_path: Path, notes: Path, encoder: PassageEncoder) -> IndexStore:
    """The version `notes`, which is CURRENT."""
    store = IndexStore(tmp_path / "indexes")
    build_index(store, "notes", open_source(str(notes)), encoder)
    store.set_current("notes")
    return store


def days() -> Iterator[datetime.datetime]:
    for day in itertools.count(1):
        yield datetime.datetime(2026, 11, day, 10, 15, tzinfo=datetime.UTC)


def follower(store: IndexStore, notes: Path, encoder: PassageEncoder, **more: object) -> Follower:
    arguments: dict[str, object] = {"serving": CurrentLine(store), "keep": 2, "clock": days().__next__}
    return Follower(store, str(notes), encoder=encoder, **(arguments | more))  # type: ignore[arg-type]


def titles(store: IndexStore, version: str) -> list[str]:
    snapshot = store.open(version)
    found = [one.title for one in snapshot.passages(range(len(snapshot)))]
    snapshot.close()
    return found


def test_a_folder_that_changes_becomes_a_version_that_is_served(
    store: IndexStore, notes: Path, encoder: PassageEncoder
) -> None:
    watcher = follower(store, notes, encoder)
    assert not watcher.look()
    (notes / "two.txt").unlink()
    (notes / "four.txt").write_text("the text of number four")
    assert watcher.look()
    assert not watcher.look()
    assert store.current() == "notes-20261102T101500Z"
    assert titles(store, "notes-20261102T101500Z") == ["one", "three", "four"]
    lineage = store.info("notes-20261102T101500Z").lineage
    assert lineage is not None
    assert (lineage.added, lineage.changed, lineage.removed, lineage.embedded) == (1, 0, 1, 1)
    # a file that is written again with the same text is no change
    (notes / "one.txt").write_text("the text of number one", encoding="utf-8")
    assert not watcher.look()
    for number in range(3):
        (notes / "five.txt").write_text(f"the text of number five, {number}")
        assert watcher.look()
    # two are kept, and what it did not make
    times = [version for version in store.versions() if version != "notes"]
    assert (len(times), store.current()) == (2, times[-1])


def test_a_version_that_could_not_be_served_is_not_built_again(
    store: IndexStore, notes: Path, encoder: PassageEncoder
) -> None:
    class Refusing(CurrentLine):
        def make_live(self, version: str) -> None:
            raise NoLiveIndex

    (notes / "four.txt").write_text("the text of number four")
    refused = follower(store, notes, encoder, serving=Refusing(store))
    for _ in range(2):
        with pytest.raises(NoLiveIndex):
            refused.look()
    refused.close()
    assert store.versions() == ("notes", "notes-20261101T101500Z")
    # nor by the next process
    assert follower(store, notes, encoder).look()
    assert store.current() == "notes-20261101T101500Z"
    assert store.versions() == ("notes", "notes-20261101T101500Z")


def test_what_a_killed_process_began_is_finished_or_thrown_away(
    store: IndexStore, notes: Path, encoder: PassageEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes / "four.txt").write_text("the text of number four")
    monkeypatch.setattr(PassageEncoder, "encode", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with closing(follower(store, notes, encoder)) as killed, pytest.raises(KeyboardInterrupt):
        killed.look()
    monkeypatch.undo()
    (notes / "five.txt").write_text("the text of number five")
    assert follower(store, notes, encoder, clock=None).look()
    assert titles(store, "notes-20261101T101500Z") == ["one", "three", "two", "five", "four"]
    assert not list(store.folder.glob(".work-*"))


def test_a_second_follower_waits_and_says_who_follows(
    store: IndexStore, notes: Path, encoder: PassageEncoder, capfd: pytest.CaptureFixture[str]
) -> None:
    first, second = (follower(store, notes, encoder) for _ in range(2))
    first.look()
    (notes / "four.txt").write_text("the text of number four")
    with pytest.raises(IndexInUse, match="already follows") as refused:
        second.look()
    assert refused.value.code == "index_in_use"
    assert f"follows the versions 'notes': process {os.getpid()} on " in str(refused.value)
    assert f" follows {notes}. " in str(refused.value)
    assert store.versions() == ("notes",)
    # the versions of another name are another's
    other = follower(store, notes, encoder)
    build_index(store, "other", open_source(str(notes)), encoder)
    store.set_current("other")
    assert not other.look()
    store.set_current("notes")
    pauses: list[float] = []

    def sleep(pause: float) -> None:
        pauses.append(pause)
        first.close()
        if len(pauses) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        keep_looking(second, 30.0, sleep)
    assert pauses == [5.0, 30.0]
    assert "not followed [index_in_use]: Another process already follows the versions 'notes'" in capfd.readouterr().err
    assert store.current() == "notes-20261101T101500Z"
    for one in (second, other):
        one.close()


def test_what_is_served_must_lie_in_the_folder(
    store: IndexStore, notes: Path, encoder: PassageEncoder, tmp_path: Path
) -> None:
    with pytest.raises(UnknownIndex, match="'notes'"):
        follower(IndexStore(tmp_path / "elsewhere"), notes, encoder, serving=CurrentLine(store)).look()


def test_nothing_that_a_look_raises_ends_the_looking(
    store: IndexStore,
    notes: Path,
    encoder: PassageEncoder,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    raised: list[Exception] = [KeyError("maybe"), MemoryError(), RecursionError("too deep"), OSError(40, "a loop")]
    pauses: list[float] = []

    def fail(_: Path) -> str:
        if len(pauses) < 1100:
            raise raised[len(pauses) % len(raised)]
        return "another state"

    def sleep(pause: float) -> None:
        pauses.append(pause)
        if len(pauses) == 1101:
            raise KeyboardInterrupt

    monkeypatch.setattr(index_follow, "state_of", fail)
    with pytest.raises(KeyboardInterrupt):
        keep_looking(follower(store, notes, encoder), 30.0, sleep)
    assert pauses == [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, *[600.0] * 1093, 30.0]
    said = capfd.readouterr().err.splitlines()
    assert "not followed [internal_error]: KeyError: 'maybe' (test_index_follow.py:" in said[0]
    assert said[0].endswith("; again in 5 s")
    assert "[internal_error]: MemoryError: " in said[1]
    assert "[system_error]: [Errno 40] a loop" in said[3]
    assert said[1099].endswith("; again in 10 min, after 1100 errors in a row")


def test_odd_files_do_not_stop_a_folder_from_being_followed(
    store: IndexStore, notes: Path, encoder: PassageEncoder
) -> None:
    for number, value in enumerate(("!!bool maybe", "!!int ''", "!!timestamp soon", "!!float ''", "[" * 5000)):
        (notes / f"odd{number}.md").write_text(f"---\ndraft: {value}\n---\nthe text of odd {number}")
    (notes / "itself.md").symlink_to(notes / "itself.md")
    (notes / "environ.md").symlink_to("/proc/self/environ")
    os.mkfifo(notes / "pipe.txt")
    assert follower(store, notes, encoder).look()
    assert titles(store, store.default_version()) == ["one", "three", "two", *(f"odd{number}" for number in range(5))]


def test_the_service_is_swapped_and_its_history_names_the_watcher(
    run: Run,
    service: str,
    indexes_folder: Path,
    notes: Path,
    encoder: PassageEncoder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # the encoder that the service's checkpoint expects
    expected = dataclasses.replace(encoder, source=dataclasses.replace(encoder.source, fingerprint=ENCODER))
    monkeypatch.setattr(PassageEncoder, "load", lambda *_, **__: expected)
    build_index(IndexStore(indexes_folder), "notes", open_source(str(notes)), expected)
    monkeypatch.setenv("OPENBOOK_ADMIN_TOKEN", TOKEN)
    admin = ("--url", service)
    assert run("index", "swap", "notes", *admin).code == 0
    (notes / "four.txt").write_text("the text of number four")
    looked = run("index", "follow", notes, "--once", *admin, "--indexes", indexes_folder)
    assert looked.code == 0, looked.err
    assert "4 passages: 1 added, 0 changed (0 of them in heading or text), 0 removed; 1 to embed" in looked.err
    newest, *_ = run("index", "history", *admin, "--json").json["swaps"]
    assert (newest["actor"], newest["previous"], newest["outcome"]) == ("openbook index follow", "notes", "ok")
    assert stem_of(newest["version"]) == "notes"


def test_names_times_and_states(notes: Path) -> None:
    assert stem_of("notes-20261122T101500Z") == "notes"
    assert stem_of("n" * 64) == "n" * index_follow.LONGEST_STEM
    assert [seconds_of(text) for text in ("90", "30s", "5m", "1.5h", "1d")] == [90, 30, 300, 5400, 86_400]
    for text in ("", "0", "m", "5 m", "-1s", "367d", "9" * 400):
        with pytest.raises(SettingInvalid, match="--every"):
            seconds_of(text)
    before = state_of(notes)
    (notes / ".swp").write_text("no text")
    assert state_of(notes) == before
    (notes / "deep").mkdir()
    (notes / "deep" / "new.txt").write_text("text")
    assert state_of(notes) != before
