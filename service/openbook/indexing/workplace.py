"""The hidden folder in which a version is made, and its move to where versions are found.

`.building-<version>-<random>` is locked by the process that writes in it, so that what a dead process left behind
is told from what a living one is making. `.replaced-<version>-<random>` is a version on its way out, and only there
where two folders cannot exchange their names in one step. `.deleted-<version>-<random>` is one that is being removed.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from openbook.storage import durable
from openbook.storage.hidden_folders import hidden


@contextmanager
def building(folder: Path, version: str) -> Iterator[Path]:
    """A new locked folder, gone at the end unless it was installed. What dead builds of `version` left is removed."""
    for leftover in hidden(folder, version, "building"):
        _remove_if_dead(leftover)
    remove_deleted(folder, version)
    while True:
        place = folder / f".building-{version}-{token_hex(4)}"
        place.mkdir()
        lock = _lock(place)
        if lock is not None:
            break
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def install(place: Path, target: Path) -> None:
    """Make `place` the version `target`, durably. At every moment `target` or its `replaced` is complete.

    Raises FileExistsError where `target` came to be while `place` was not meant to replace it.
    """
    durable.sync_folder(place)
    place.rename(target)
    durable.sync_folder(target.parent)


def replace(place: Path, target: Path, version: str) -> None:
    """As `install`, over a version that is there. Who has mapped its files goes on reading them."""
    durable.sync_folder(place)
    if not durable.exchange(place, target):
        aside = target.parent / f".replaced-{version}-{token_hex(4)}"
        target.rename(aside)
        place.rename(target)
    durable.sync_folder(target.parent)
    remove_replaced(target.parent, version)


def remove_replaced(folder: Path, version: str) -> None:
    for path in hidden(folder, version, "replaced"):
        shutil.rmtree(path, ignore_errors=True)


def is_being_built(folder: Path, version: str) -> bool:
    """Whether a living process is making this version."""
    for place in hidden(folder, version, "building"):
        descriptor = _lock(place)
        if descriptor is None and place.is_dir():
            return True
        if descriptor is not None:
            os.close(descriptor)
    return False


def set_aside(place: Path, version: str) -> Path:
    """Take the name from a version, durably; who has it open goes on reading. What is left is to be removed."""
    aside = place.parent / f".deleted-{version}-{token_hex(4)}"
    place.rename(aside)
    durable.sync_folder(place.parent)
    return aside


def remove_deleted(folder: Path, version: str) -> None:
    """Remove what a deletion that was interrupted left of `version`."""
    for path in hidden(folder, version, "deleted"):
        shutil.rmtree(path, ignore_errors=True)


def _lock(place: Path) -> int | None:
    """The descriptor that holds the lock, or None where another process has it or has removed the folder."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    if not place.is_dir():
        os.close(descriptor)
        return None
    return descriptor


def _remove_if_dead(leftover: Path) -> None:
    descriptor = _lock(leftover)
    if descriptor is not None:
        shutil.rmtree(leftover, ignore_errors=True)
        os.close(descriptor)
