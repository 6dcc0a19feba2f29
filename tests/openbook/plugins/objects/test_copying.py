"""Versions that go to a store and come from it: whole, once, and where they were stopped."""

import errno
import hashlib
import os
import shutil
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from openbook.errors import (
    IndexCorrupt,
    IndexExists,
    IndexTooLarge,
    ShuttingDown,
    UnknownIndex,
)
from openbook.plugins.objects.copying import pull, push, read_remote, verify_remote
from openbook.plugins.objects.fsspec_store import FsspecStore
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny
from tests.fixtures.stores import push_all

QUIET = lambda share: None  # noqa: E731


pytestmark = pytest.mark.usefixtures("soon_again")


@pytest.fixture
def objects(store_url: str, tiny_indexes: Path) -> FsspecStore:
    return push_all(store_url, tiny_indexes)


@pytest.fixture
def cache(tmp_path: Path) -> IndexStore:
    return IndexStore(tmp_path / "cache")


def contents(store: IndexStore) -> dict[str, str]:
    """The sha256 of every file that is not hidden."""
    return {
        path.relative_to(store.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in store.folder.rglob("*")
        if path.is_file() and not path.name.startswith(".lock")
    }


class Meter:
    """Counts bytes, and the shares that were told; raises at a share."""

    def __init__(self, end_at: float = 2.0) -> None:
        self.bytes = 0
        self.shares: list[float] = []
        self.end_at = end_at

    def count(self, n_bytes: int) -> None:
        self.bytes += n_bytes

    def report(self, share: float) -> None:
        self.shares.append(share)
        if share >= self.end_at:
            raise ShuttingDown(version="tiny-2018")


def size_of(store: IndexStore, version: str) -> int:
    return sum(file.bytes for file in store.info(version).files.values())


@pytest.mark.parametrize("store_url", ["file", "memory"], indirect=True)
def test_what_is_pushed_is_pulled_with_the_same_bytes(
    objects: FsspecStore, cache: IndexStore, tiny_indexes: Path
) -> None:
    meter = Meter()
    for version in ("tiny-2016", "tiny-2018"):
        pull(objects, cache, version, meter.report, meter.count)
    expected = contents(IndexStore(tiny_indexes))
    del expected["CURRENT"]
    assert contents(cache) == expected
    assert meter.bytes == sum(size_of(cache, version) for version in cache.versions())
    first = meter.shares[: meter.shares.index(1.0) + 1]
    assert first == sorted(first)
    assert len(set(first)) > 10
    assert objects.versions() == cache.versions() == ("tiny-2016", "tiny-2018")
    assert objects.current() == "tiny-2016"
    cache.verify("tiny-2018")


def test_a_pull_that_is_ended_leaves_nothing_that_counts_and_the_next_goes_on(
    objects: FsspecStore, cache: IndexStore
) -> None:
    ended, meter = Meter(end_at=0.6), Meter()
    with pytest.raises(ShuttingDown):
        pull(objects, cache, "tiny-2018", ended.report, ended.count)
    assert cache.versions() == ()
    pull(objects, cache, "tiny-2018", meter.report, meter.count)
    assert ended.bytes + meter.bytes == size_of(cache, "tiny-2018")
    assert meter.shares[0] >= 0.6
    cache.verify("tiny-2018")
    assert [path.name for path in cache.folder.iterdir()] == ["tiny-2018"]


def test_bytes_that_a_power_cut_spoilt_are_fetched_again(objects: FsspecStore, cache: IndexStore) -> None:
    with pytest.raises(ShuttingDown):
        pull(objects, cache, "tiny-2018", Meter(0.6).report, lambda n: None)
    (part,) = cache.folder.glob(".pulling-*/*.part")
    part.write_bytes(bytes(part.stat().st_size))
    pull(objects, cache, "tiny-2018", QUIET, lambda n: None)
    cache.verify("tiny-2018")


def test_two_that_pull_at_once_pull_it_once(objects: FsspecStore, cache: IndexStore) -> None:
    meters = [Meter(), Meter()]
    threads = [
        threading.Thread(target=pull, args=(objects, cache, "tiny-2018", meter.report, meter.count)) for meter in meters
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    cache.verify("tiny-2018")
    assert sum(meter.bytes for meter in meters) == size_of(cache, "tiny-2018")


def test_a_version_that_was_pushed_again_replaces_the_copy(
    objects: FsspecStore, cache: IndexStore, indexes_folder: Path
) -> None:
    origin = IndexStore(indexes_folder)
    pull(objects, cache, "tiny-2018", QUIET, lambda n: None)
    publish_tiny(origin, "tiny-2016", as_version="tiny-2018", replace=True)
    with pytest.raises(IndexExists):
        push(objects, origin, "tiny-2018", QUIET)
    with closing(cache.open("tiny-2018")) as before:
        assert push(objects, origin, "tiny-2018", QUIET, replace=True)
        assert not push(objects, origin, "tiny-2018", QUIET)
        pull(objects, cache, "tiny-2018", QUIET, lambda n: None)
        # a reader of the older files keeps them
        before.check_whole()
    assert cache.verify("tiny-2018") == origin.info("tiny-2018") == read_remote(objects, "tiny-2018")[0]


def test_damage_in_the_store_is_found_and_nothing_of_it_counts(
    tmp_path: Path, cache: IndexStore, tiny_indexes: Path
) -> None:
    objects = push_all(f"file://{tmp_path}/store", tiny_indexes)
    (file,) = (tmp_path / "store").glob("tiny-2018/*/index.faiss")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(IndexCorrupt, match="does not match the sha256"):
        pull(objects, cache, "tiny-2018", QUIET, lambda n: None)
    with pytest.raises(IndexCorrupt, match="does not match the sha256"):
        verify_remote(objects, "tiny-2018")
    file.unlink()
    with pytest.raises(IndexCorrupt, match="lacks its file"):
        pull(objects, cache, "tiny-2018", QUIET, lambda n: None)
    assert cache.versions() == ()
    verify_remote(objects, "tiny-2016")


def test_a_half_pushed_version_is_not_seen_and_the_next_push_goes_on(
    store_url: str, tiny_indexes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, origin = FsspecStore(store_url), IndexStore(tiny_indexes)
    with pytest.raises(ShuttingDown):
        push(objects, origin, "tiny-2018", Meter(0.6).report)
    assert objects.versions() == ()
    with pytest.raises(UnknownIndex):
        pull(objects, origin, "tiny-2018", QUIET, lambda n: None)
    sent: list[str] = []
    put_file = FsspecStore.put_file
    monkeypatch.setattr(
        FsspecStore, "put_file", lambda self, path, *more: (sent.append(path), put_file(self, path, *more))
    )
    assert push(objects, origin, "tiny-2018", QUIET)
    # the other was there
    assert len(sent) == 1
    assert objects.versions() == ("tiny-2018",)


def test_a_damaged_version_is_not_pushed(store_url: str, indexes_folder: Path) -> None:
    objects = FsspecStore(store_url)
    file = indexes_folder / "tiny-2018" / "index.faiss"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(IndexCorrupt, match="does not match the sha256"):
        push(objects, IndexStore(indexes_folder), "tiny-2018", QUIET)
    assert objects.versions() == ()


def test_a_full_disk_is_said_before_and_during_the_pull(
    objects: FsspecStore, cache: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")._replace(free=100)
    with monkeypatch.context() as small:
        small.setattr(shutil, "disk_usage", lambda path: usage)
        meter = Meter()
        with pytest.raises(IndexTooLarge, match="100 free"):
            pull(objects, cache, "tiny-2018", meter.report, meter.count)
        assert meter.bytes == 0

    def full(n_bytes: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(IndexTooLarge, match="the disk of OPENBOOK_CACHE"):
        pull(objects, cache, "tiny-2018", QUIET, full)
    assert cache.versions() == ()


def test_what_stopped_pulls_left_goes(objects: FsspecStore, cache: IndexStore, indexes_folder: Path) -> None:
    with pytest.raises(ShuttingDown):
        pull(objects, cache, "tiny-2018", Meter(0.6).report, lambda n: None)
    origin = IndexStore(indexes_folder)
    publish_tiny(origin, "tiny-2016", as_version="tiny-2018", replace=True)
    push(objects, origin, "tiny-2018", QUIET, replace=True)
    # of other versions: one is gone on with tomorrow
    young, old = (cache.folder / f".pulling-{name}-0123abcd" for name in ("young", "old"))
    for place in (young, old):
        place.mkdir()
    os.utime(old, (0, 0))
    pull(objects, cache, "tiny-2018", QUIET, lambda n: None)
    assert list(cache.folder.glob(".pulling*")) == [young]


def test_a_pull_that_may_not_open_its_folder_ends(
    objects: FsspecStore, cache: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may open any: the system call is made to refuse."""
    opened = os.open

    def refuse(path: Any, *more: Any, **named: Any) -> int:
        if ".pulling-" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PermissionError):
        # of a pull that waited for another process, the first report would end it
        pull(objects, cache, "tiny-2018", Meter(0.0).report, lambda n: None)
