"""CURRENT: the one line that says which version services come back on."""

from dataclasses import dataclass
from pathlib import Path

from openbook.storage import durable

CURRENT = "CURRENT"


@dataclass(frozen=True, slots=True)
class CurrentMark:
    """By what one writing of CURRENT is told from another without reading it: each makes a file of its own."""

    inode: int
    mtime_ns: int
    size: int


# What no file has: a CURRENT that comes to be is a change.
NO_CURRENT = CurrentMark(0, 0, 0)


def mark(folder: Path) -> CurrentMark | None:
    """None where there is no CURRENT. Raises OSError where the system does not say."""
    try:
        found = (folder / CURRENT).stat()
    except FileNotFoundError:
        return None
    return CurrentMark(found.st_ino, found.st_mtime_ns, found.st_size)


def read(folder: Path) -> str | None:
    """The line as it stands, which may be no name at all; None where there is no CURRENT."""
    try:
        return (folder / CURRENT).read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None


def write(folder: Path, version: str) -> CurrentMark:
    """Readers see the line before or this one. The mark is of this writing, whoever writes next."""
    written = durable.write_atomically(folder / CURRENT, f"{version}\n")
    return CurrentMark(written.st_ino, written.st_mtime_ns, written.st_size)
