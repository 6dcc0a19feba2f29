"""Copy a version between an object store and a folder on this machine's disk; a kill leaves it whole, or not there.

A pull collects the files in the hidden folder `.pulling-<version>-<content>`, which the pulling process locks. A file
that is not there as a whole is called `<file>.part`: it holds the bytes up to where the next pull goes on. A push
writes the files into a folder that their content names, and the manifest last.
"""

import errno
import hashlib
import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from openbook.entities import IndexInfo
from openbook.errors import (
    IndexCorrupt,
    IndexExists,
    IndexTooLarge,
    OpenbookError,
    UnknownIndex,
)
from openbook.plugins.objects.object_store import Conflict, ObjectStore
from openbook.storage import durable, workplace
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import manifest_bytes, parse_manifest
from openbook.storage.placing import put_in_place

# Of a pull: so many ranges of so many bytes are asked for at once, and wait in memory for their turn.
RANGES_AT_ONCE, RANGE_BYTES = 6, 8 << 20
# Seconds between two looks at whether the pull is to end.
LOOK_S = 0.1
# How often a pull begins again because the version was published again meanwhile.
MOST_CHANGES = 3
# What a pull has left behind is kept for the next one so long.
LEFTOVER_S = 86_400.0
FULL = (errno.ENOSPC, errno.EDQUOT)

# receives the share that is done, and raises what ends the work
Report = Callable[[float], None]


class Range(NamedTuple):
    """Bytes of a file of a version, and where the file lies in the store."""

    name: str
    path: str
    start: int
    end: int


def read_remote(objects: ObjectStore, version: str) -> tuple[IndexInfo, str]:
    """What the manifest in the store says, and where its files lie there. Raises UnknownIndex, IndexCorrupt."""
    found = objects.manifest(version)
    if found is None:
        raise UnknownIndex(version=version, available=objects.versions())
    info, folder = parse_manifest(found, version)
    return info, f"{version}/{folder}".rstrip("/")


def pull(objects: ObjectStore, store: IndexStore, version: str, report: Report, count: Callable[[int], None]) -> None:
    """Bring what the store has under this name to the folder, whole and compared with its checksums.

    Goes on where an earlier pull was stopped. Two processes that pull the same version into one folder pull it once.
    `count` receives the bytes that have come. Raises UnknownIndex, IndexCorrupt, IndexTooLarge,
    StoreUnreachable, and what `report` raises; then the folder has what it had.
    """
    store.folder.mkdir(parents=True, exist_ok=True)
    for attempt in range(MOST_CHANGES):
        info, where = read_remote(objects, version)
        try:
            with _pulling(store, info, report) as place:
                if local_info(store, version) == info:
                    # another process has pulled it meanwhile
                    return
                # of other contents of this version; this pull holds its own
                workplace.remove_dead(workplace.hidden(store.folder, "pulling", version))
                workplace.remove_dead(workplace.hidden(store.folder, "pulling"), time.time() - LEFTOVER_S)
                _fetch(objects, info, where, place, report, count)
                put_in_place(store, place, info, replace=True)
                return
        except (IndexCorrupt, IndexExists):
            changed = read_remote(objects, version) != (info, where) or local_info(store, version) == info
            if attempt + 1 == MOST_CHANGES or not changed:
                raise
        except OSError as error:
            if error.errno in FULL:
                raise IndexTooLarge("cache", version=version, needed=_size(info), free=_free(store.folder)) from error
            raise


def push(objects: ObjectStore, store: IndexStore, version: str, report: Report, *, replace: bool = False) -> bool:
    """Bring a version of a folder to the store. False where it is there already.

    A push that was stopped goes on with the first file that is not there. Readers see the version once all is there.
    Raises what `IndexStore.verify` raises, and IndexExists where the store has another version of this name: with
    `replace`, only where another process has just put it there.
    """
    info = store.info(version)
    mark = objects.manifest_mark(version)
    if mark is not None:
        with suppress(IndexCorrupt):
            if read_remote(objects, version)[0] == info:
                return False
        if not replace:
            raise IndexExists(version=version)
    # half of the progress: every byte is read before the first is sent
    store.check(version, verify="checksum", report=lambda share: report(share / 2))
    folder, sent, total = f"r-{_content(info)}", 0, max(1, _size(info))

    def tell(n_bytes: int) -> None:
        nonlocal sent
        sent += n_bytes
        report(0.5 + sent / total / 2)

    for name, file in info.files.items():
        path = f"{version}/{folder}/{name}"
        if objects.size(path) == file.bytes:
            tell(file.bytes)
        else:
            objects.put_file(path, store.file(version, name), tell)
    try:
        objects.put_manifest(version, manifest_bytes(info, folder), mark)
    except Conflict:
        if read_remote(objects, version)[0] != info:
            raise IndexExists(version=version) from None
    return True


def verify_remote(objects: ObjectStore, version: str, report: Callable[[str], None] | None = None) -> IndexInfo:
    """Read every byte of a version in the store and compare it with the manifest; `report` gets a line for each file.

    Raises what `pull` raises.
    """
    info, where = read_remote(objects, version)
    for name, file in info.files.items():
        digest = hashlib.sha256()
        for content in _in_order(objects, _ranges(name, where, 0, file.bytes), lambda: None, version):
            digest.update(content)
        if digest.hexdigest() != file.sha256:
            raise IndexCorrupt("checksum", version=version, file=name)
        if report is not None:
            report(f"{name}: {file.bytes} bytes, sha256 {file.sha256}")
    return info


def local_info(store: IndexStore, version: str) -> IndexInfo | None:
    """The manifest on the disk; None where the folder has no version of this name that could be opened."""
    with suppress(OpenbookError):
        info = store.info(version)
        store.check(version)
        return info
    return None


# --- one pull --------------------------------------------------------------------------------------------------


@contextmanager
def _pulling(store: IndexStore, info: IndexInfo, report: Report) -> Iterator[Path]:
    """The folder of this pull, locked. Waits while another process has it."""
    place = store.folder / f".pulling-{info.version}-{_content(info)}"
    while True:
        place.mkdir(exist_ok=True)
        lock = workplace.lock_folder(place, unsupported=True)
        if lock is not None:
            break
        report(0.0)
        time.sleep(LOOK_S)
    try:
        os.utime(place)
        yield place
        # what is left: nothing, where the files have their place
        if local_info(store, info.version) == info:
            shutil.rmtree(place, ignore_errors=True)
    finally:
        os.close(lock)


def _fetch(
    objects: ObjectStore, info: IndexInfo, where: str, place: Path, report: Report, count: Callable[[int], None]
) -> None:
    """Collect all files of a version in `place`, on the disk and compared with their checksums."""
    for path in place.iterdir():
        if path.name.removesuffix(".part") not in info.files:
            path.unlink()
    done = sum(path.stat().st_size for path in place.iterdir())
    needed, free = _size(info) - done, _free(place)
    if needed > free:
        raise IndexTooLarge("cache", version=info.version, needed=needed, free=free)
    total = max(1, _size(info))

    def told(n_bytes: int) -> None:
        nonlocal done
        done += n_bytes
        report(min(1.0, done / total))

    told(0)
    for name, file in info.files.items():
        whole, part = place / name, place / f"{name}.part"
        if whole.is_file() and whole.stat().st_size == file.bytes:
            continue
        # what an earlier pull left may have suffered from a power cut: then once more from its first byte
        for resumed in (True, False):
            if not resumed and part.exists():
                told(-part.stat().st_size)
                part.unlink()
            start, sha256 = _append(objects, info, name, where, part, told, count)
            if sha256 == file.sha256:
                break
            if not start:
                part.unlink()
                raise IndexCorrupt("checksum", version=info.version, file=name)
        durable.sync_file(part)
        part.rename(whole)


def _append(
    objects: ObjectStore,
    info: IndexInfo,
    name: str,
    where: str,
    part: Path,
    told: Callable[[int], None],
    count: Callable[[int], None],
) -> tuple[int, str]:
    """Fetch what `part` lacks. Returns how many bytes it had, and the sha256 of the whole."""
    size = info.files[name].bytes
    digest = hashlib.sha256()
    with part.open("a+b") as file:
        start = min(file.seek(0, os.SEEK_END), size)
        file.truncate(start)
        file.seek(0)
        while block := file.read(durable.BLOCK_BYTES):
            digest.update(block)
            told(0)
        for content in _in_order(objects, _ranges(name, where, start, size), lambda: told(0), info.version):
            file.write(content)
            digest.update(content)
            count(len(content))
            told(len(content))
    return start, digest.hexdigest()


def _ranges(name: str, where: str, start: int, size: int) -> Iterator[Range]:
    for first in range(start, size, RANGE_BYTES):
        yield Range(name, f"{where}/{name}", first, min(first + RANGE_BYTES, size))


def _in_order(
    objects: ObjectStore, ranges: Iterator[Range], check: Callable[[], None], version: str
) -> Iterator[bytes]:
    """The bytes of the ranges in their order, some of which are read at the same time. `check` may raise meanwhile."""
    ending = threading.Event()
    asked: deque[tuple[Range, Future[bytes]]] = deque()
    pool = ThreadPoolExecutor(RANGES_AT_ONCE, thread_name_prefix="pull")
    try:
        while True:
            while len(asked) < RANGES_AT_ONCE and (one := next(ranges, None)) is not None:
                asked.append((one, pool.submit(objects.read, one.path, one.start, one.end, ending)))
            if not asked:
                return
            one, answer = asked[0]
            while not wait((answer,), LOOK_S).done:
                check()
            try:
                yield answer.result()
            except FileNotFoundError:
                raise IndexCorrupt("missing", version=version, file=one.name) from None
            asked.popleft()
    finally:
        ending.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _content(info: IndexInfo) -> str:
    """Eight hexadecimal digits that follow from what a version holds."""
    return hashlib.sha256(manifest_bytes(info)).hexdigest()[:8]


def _size(info: IndexInfo) -> int:
    return sum(file.bytes for file in info.files.values())


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free
