"""What this process has mapped, as the kernel says."""

import time
from pathlib import Path

PATIENCE_S = 60.0


def mapped(path: Path) -> int:
    """How many mappings of files at or below `path` there are."""
    return sum(str(path) in line for line in Path("/proc/self/maps").read_text().splitlines())


def unmapped_soon(path: Path) -> bool:
    """Whether none is left, now or in a moment: a thread of Arrow's may be the last to let go of what it read."""
    until = time.monotonic() + PATIENCE_S
    while mapped(path):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
