"""How many bytes one more index may take on this machine, or in this container."""

import sys
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")


def free_memory(meminfo: Path = MEMINFO, cgroup: Path = CGROUP) -> int:
    """The smaller of what the system calls available and what the container's limit leaves.

    Pages of files count as free, since the system can drop them: those of the open indexes too, which the caller
    takes off for as long as they are needed. Where the system does not say, nothing is refused.
    """
    return min(_available(meminfo), _left_in_container(cgroup))


def _available(meminfo: Path) -> int:
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return sys.maxsize
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return sys.maxsize


def _left_in_container(cgroup: Path) -> int:
    try:
        limit = (cgroup / "memory.max").read_text(encoding="ascii").strip()
        if limit == "max":
            return sys.maxsize
        used = int((cgroup / "memory.current").read_text(encoding="ascii"))
        droppable = 0
        for line in (cgroup / "memory.stat").read_text(encoding="ascii").splitlines():
            if line.startswith(("active_file ", "inactive_file ")):
                droppable += int(line.split()[1])
    except (OSError, ValueError):
        return sys.maxsize
    return max(0, int(limit) - used + droppable)
