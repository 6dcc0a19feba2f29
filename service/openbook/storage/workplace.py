"""The hidden folders beside the versions: `.building-<version>-<random>`, `.pulling-<version>-<content>`, and
`.deleted-<version>-<random>`.

The process that writes in one of the first two holds its lock, which tells it from one that a dead process left. A
deleted version, and each file that a published version no longer names, waits under a `.deleted-` name to be removed.
"""

import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from openbook.storage import durable

_HIDDEN = re.compile(r"\.(?P<kind>building|pulling|deleted)-(?P<version>.+)-[0-9a-f]{8}")


@contextmanager
def building(folder: Path, version: str) -> Iterator[Path]:
    """A new locked folder, gone at the end unless it was given the version's name; removes dead builds of `version`."""
    remove_dead(hidden(folder, "building", version))
    while True:
        place = folder / f".building-{version}-{token_hex(4)}"
        place.mkdir()
        lock = lock_folder(place, unsupported=True)
        if lock is not None:
            break
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        os.close(lock)


def is_being_built(folder: Path, version: str) -> bool:
    """Whether a living process is making this version."""
    for place in hidden(folder, "building", version):
        lock = _lock_if_free(place)
        if lock is not None:
            os.close(lock)
        elif place.is_dir():
            return True
    return False


def remove_dead(places: Iterable[Path], before: float = math.inf) -> None:
    """Remove each folder that no process holds, if nothing in it has changed since `before`.

    Over NFS a folder's lock is known to its own machine alone: there the age tells a dead build from another machine's.
    """
    for place in places:
        with suppress(OSError):
            if max(path.lstat().st_mtime for path in (place, *place.iterdir())) >= before:
                continue
        lock = _lock_if_free(place)
        if lock is not None:
            shutil.rmtree(place, ignore_errors=True)
            os.close(lock)


def tombstone(folder: Path, version: str) -> Path:
    """A new name for what waits to be removed."""
    return folder / f".deleted-{version}-{token_hex(4)}"


def hidden(folder: Path, kind: str, version: str | None = None) -> list[Path]:
    """Hidden paths of a kind, of one version or of all."""
    found = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        match = _HIDDEN.fullmatch(path.name)
        if match and match["kind"] == kind and version in (None, match["version"]) and not path.is_symlink():
            found.append(path)
    return found


def lock_folder(place: Path, *, unsupported: bool) -> int | None:
    """The descriptor that holds the lock; None where another process has it or has removed the folder.

    Raises OSError where the system does not let it be opened: to try again would not help.
    """
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    if durable.lock(descriptor, place, unsupported=unsupported):
        return descriptor
    os.close(descriptor)
    return None


def _lock_if_free(place: Path) -> int | None:
    """None also for a folder of another user's, or what is none."""
    with suppress(OSError):
        return lock_folder(place, unsupported=False)
    return None
