"""CURRENT: the one line that says which version services come back on."""

import os
from pathlib import Path
from typing import NamedTuple

from openbook.errors import IndexCorrupt
from openbook.storage import durable
from openbook.storage.durable import FileMark

CURRENT = "CURRENT"
MOST_BYTES = 256


class StoreMark(NamedTuple):
    """Tells one writing of CURRENT in an object store from another: its ETag, or what the store has in its place."""

    tag: str


CurrentMark = FileMark | StoreMark
# No file has this mark, so a new CURRENT is always a change.
NO_CURRENT = FileMark(0, 0, 0)
# Nor has any CURRENT of a store this one: a write that is bound to it never happens.
UNKNOWN_CURRENT = StoreMark("unknown")


def mark(folder: Path) -> FileMark | None:
    """None where there is no CURRENT. Raises OSError, which names no path, where the folder is out of reach."""
    try:
        # one look at the folder, which may go and come back: without it nothing is known of CURRENT
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, error.strerror) from error
    try:
        return FileMark.of(os.lstat(CURRENT, dir_fd=descriptor))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OSError(error.errno, error.strerror) from error
    finally:
        os.close(descriptor)


def read(folder: Path) -> str | None:
    """The line as it stands, which may be no version's name; None without a CURRENT. Raises IndexCorrupt."""
    try:
        content, _ = durable.read_small(folder / CURRENT, MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IndexCorrupt("current", reason=error.strerror) from error
    return content.decode(errors="replace").strip()


def write(folder: Path, version: str) -> FileMark:
    """Readers see the line before or this one. Returns the mark of this writing, even where another follows it."""
    return durable.write_atomically(folder / CURRENT, f"{version}\n")
