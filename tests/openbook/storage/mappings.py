"""What this process has mapped and opened, as the kernel says."""

from contextlib import suppress
from pathlib import Path

from tests.waiting import until


def mapped(path: Path) -> int:
    """How many mappings of files at or below `path` there are."""
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())


def until_unmapped(path: Path) -> None:
    """A thread of Arrow's may be the last to let go of what it read."""
    until(lambda: not mapped(path), what=f"{path} to be mapped nowhere")


def opened(path: Path) -> int:
    """How many descriptors of files at or below `path` there are. What else the process opens and closes is not its."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        # another thread may close one meanwhile
        with suppress(OSError):
            found += str(link.readlink()).startswith(str(path))
    return found
