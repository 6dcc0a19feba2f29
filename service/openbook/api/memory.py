"""How many bytes one more index may take on this machine, or in this container."""

import sys
from collections.abc import Iterator
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
# of control groups, version 2 and version 1: the limit, what is used of it, and what of that is pages of files
UNIFIED = ("memory.max", "memory.current", ("inactive_file ", "active_file "))
LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file ", "total_active_file "))


def free_memory(meminfo: Path = MEMINFO, cgroup: Path = CGROUP, membership: Path = MEMBERSHIP) -> int:
    """The smallest of what the system calls available and what each limit on this process leaves.

    Pages of files count as free, since the system can drop them: those of the open indexes too, which the caller
    takes off for as long as they are needed. Where the system does not say, nothing is refused.
    """
    unified, legacy = _groups_of(membership)
    left = [_left(group, *UNIFIED) for group in _with_parents(cgroup, unified)]
    left += [_left(group, *LEGACY) for group in _with_parents(cgroup / "memory", legacy)]
    return min(_available(meminfo), *left)


def _available(meminfo: Path) -> int:
    try:
        lines = meminfo.read_text(encoding="ascii").splitlines()
    except OSError:
        return sys.maxsize
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return sys.maxsize


def _groups_of(membership: Path) -> tuple[str, str]:
    """The paths of this process's groups of version 2 and, for memory, of version 1; "/" where nothing tells."""
    unified = legacy = "/"
    try:
        lines = membership.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return unified, legacy
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if not controllers:
            unified = path
        elif "memory" in controllers.split(","):
            legacy = path
    return unified, legacy


def _with_parents(root: Path, group: str) -> Iterator[Path]:
    """The folders of a group and of all that it is in: each may have a limit. In a container the root is the group's
    own, and the path may be one that only the host knows."""
    yield root
    folder = root
    for part in Path(group).parts[1:]:
        if part == "..":
            return
        folder = folder / part
        yield folder


def _left(group: Path, limit_file: str, used_file: str, droppable_lines: tuple[str, ...]) -> int:
    try:
        limit = (group / limit_file).read_text(encoding="ascii").strip()
        if limit == "max":
            return sys.maxsize
        used = int((group / used_file).read_text(encoding="ascii"))
        droppable = 0
        for line in (group / "memory.stat").read_text(encoding="ascii").splitlines():
            if line.startswith(droppable_lines):
                droppable += int(line.split()[1])
    except (OSError, ValueError):
        return sys.maxsize
    return max(0, int(limit) - used + droppable)
