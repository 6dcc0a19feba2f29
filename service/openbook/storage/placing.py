"""Versions in a folder: each is placed, replaced and deleted as a whole, and files that nobody reads are removed."""

import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from openbook.entities import FileInfo, IndexInfo
from openbook.errors import IndexCorrupt, IndexExists, IndexInUse
from openbook.storage import current, durable, workplace
from openbook.storage.index_store import IndexStore, check_version_name
from openbook.storage.manifest import DATA_FILES, FOLDER_NAME, MANIFEST, open_manifest, write_manifest

# Where an NFS mount keeps locks to its own machine, a service that has deleted or replaced files open must let go of
# them within this time.
PRUNE_AFTER_S = 3600.0


def check_free(store: IndexStore, version: str, *, replace: bool = False) -> None:
    """Raise IndexExists where `put_in_place` would, before hours are spent. Never replaces a link or a file."""
    path = store.folder / check_version_name(version)
    if os.path.lexists(path) and not (replace and path.is_dir() and not path.is_symlink()):
        raise IndexExists(version=version)


@contextmanager
def making(store: IndexStore, version: str) -> Iterator[Path]:
    """A hidden folder for the files of a version, gone at the end unless `put_in_place` has moved it.

    Prunes first, to make room.
    """
    store.folder.mkdir(parents=True, exist_ok=True)
    prune(store)
    with workplace.building(store.folder, version) as place:
        yield place


def describe(
    place: Path, names: Iterable[str], report: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, FileInfo]:
    """Bring these files to the disk. Returns their bytes and sha256; `report` receives the bytes read, and of all."""
    paths = [place / name for name in names]
    total, read = sum(path.stat().st_size for path in paths), 0

    def count(n_bytes: int) -> None:
        nonlocal read
        read += n_bytes
        report(read, total)

    for path in paths:
        durable.sync_file(path)
    return {path.name: FileInfo(path.stat().st_size, durable.sha256_of(path, count)) for path in paths}


def link_files(store: IndexStore, info: IndexInfo, names: Iterable[str], place: Path) -> None:
    """Give files of a version a second name in `place`, on the disk; a copy where the file system has no second names.

    Raises IndexCorrupt for a copy of damaged bytes.
    """
    for name in names:
        source = store.file(info.version, name)
        try:
            os.link(source, place / name)
        except OSError:
            _copy(source, place / name, info)
        durable.sync_file(place / name)


def check_sum(path: Path, info: IndexInfo) -> None:
    """Raise IndexCorrupt unless the file is the one of this name in the manifest."""
    if durable.sha256_of(path) != info.files[path.name].sha256:
        raise IndexCorrupt("checksum", version=info.version, file=path.name)


def put_in_place(store: IndexStore, place: Path, info: IndexInfo, *, replace: bool = False) -> None:
    """Publish the files in `place`, all on the disk, under `info.version`; readers see it whole, or the old version.

    A new version takes its name by one rename. With `replace`, the files become a folder of the version that is there,
    and one rename then replaces its manifest by one that names that folder. `prune` removes the older files. Raises
    IndexExists.
    """
    target = store.folder / info.version
    if replace and target.is_dir():
        with store.lock:
            _replace(place, target, info)
        return
    write_manifest(place, info)
    durable.sync_file(place / MANIFEST)
    durable.sync_folder(place)
    try:
        place.rename(target)
    except OSError as error:
        if target.exists():
            raise IndexExists(version=info.version) from error
        raise
    durable.sync_folder(store.folder)


def delete_version(store: IndexStore, version: str) -> None:
    """Take a version's name away. A process that has it open keeps reading; `prune` removes the files.

    Raises UnknownIndex, and IndexInUse for the version that CURRENT names and for one that is being published.
    """
    store.find(version)
    prune(store)
    with store.lock:
        place = store.find(version)
        if workplace.is_being_built(store.folder, version):
            raise IndexInUse(version=version, reason="it is being published")
        if current.read(store.folder) == version:
            raise IndexInUse(version=version, reason="CURRENT names it, and services start with it")
        os.utime(place)
        place.rename(workplace.tombstone(store.folder, version))
        durable.sync_folder(store.folder)


def prune(store: IndexStore, *, older_than_s: float = PRUNE_AFTER_S) -> int:
    """Remove deleted versions and replaced files once they are so many seconds old, and what dead builds left.

    They wait because a process may have them mapped, and longer while one has: `IndexStore.open` holds a shared lock on
    each file. A local file system keeps an unlinked file until the last mapping goes. NFS keeps it only for the client
    that unlinked it: a service on another machine would end with SIGBUS. The age covers mounts that keep locks local.
    Returns how many files and folders were removed.
    """
    before = time.time() - older_than_s
    workplace.remove_dead(workplace.hidden(store.folder, "building"), before)
    for version in store.versions():
        # a folder of another user's stays as it is
        with suppress(OSError):
            place = store.folder / version
            if _unnamed(place, version, before):
                with store.lock:
                    for path in _unnamed(place, version, before):
                        path.rename(workplace.tombstone(store.folder, version))
    n_removed = 0
    for path in workplace.hidden(store.folder, "deleted"):
        # another process may prune at the same time
        with suppress(OSError):
            if path.lstat().st_mtime > before:
                continue
            with durable.unread(one for one in (path, *path.rglob("*")) if one.is_file()) as unread:
                if unread:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                    n_removed += 1
    return n_removed


def place_copy(store: IndexStore, folder: Path) -> IndexInfo:
    """Place a version that lies ready in another folder, such as one that a package brings, under its own name.

    Raises IndexExists, and what `IndexStore.verify` raises for files that do not fit their manifest.
    """
    version = check_version_name(folder.name)
    check_free(store, version)
    source = IndexStore(folder.parent, store.settings)
    info = source.verify(version)
    with making(store, version) as place:
        for name in info.files:
            _copy(source.file(version, name), place / name, info)
            durable.sync_file(place / name)
        put_in_place(store, place, info)
    return info


def _copy(source: Path, target: Path, info: IndexInfo) -> None:
    shutil.copyfile(source, target)
    check_sum(target, info)


def _replace(place: Path, target: Path, info: IndexInfo) -> None:
    folder = f"r-{token_hex(4)}"
    write_manifest(place, info, files_in=folder)
    durable.sync_file(place / MANIFEST)
    durable.sync_folder(place)
    unnamed = _unnamed(target, info.version)
    for path in _data(target):
        if path not in unnamed:
            # the age of a replaced file counts from now
            os.utime(path)
    place.rename(target / folder)
    durable.sync_folder(target)
    (target / folder / MANIFEST).rename(target / MANIFEST)
    durable.sync_folder(target)


def _unnamed(place: Path, version: str, before: float = math.inf) -> list[Path]:
    """What lies in a version, is not named by its manifest and has not changed since `before`.

    Empty where the manifest cannot be read: it may yet be mended.
    """
    try:
        folder = open_manifest(place, version).folder
    except IndexCorrupt:
        return []
    unnamed = (path for path in _data(place) if path != folder and (path.name not in DATA_FILES or folder != place))
    return [path for path in unnamed if path.lstat().st_mtime <= before]


def _data(place: Path) -> list[Path]:
    return [path for path in place.iterdir() if path.name in DATA_FILES or FOLDER_NAME.fullmatch(path.name)]
