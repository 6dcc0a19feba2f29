"""How many bytes one more index may take on this machine, or in this container."""

import sys
from collections.abc import Iterator
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
# Of control groups, version 2 and version 1: the limit, what is used of it, and which of that are pages of files.
UNIFIED = ("memory.max", "memory.current", ("inactive_file", "active_file"))
LEGACY = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file"))


def free_memory(meminfo: Path = MEMINFO, cgroup: Path = CGROUP, membership: Path = MEMBERSHIP) -> int:
    """The smallest of what the system calls available and what each limit on this process leaves.

    Pages of files count as free, since the system can drop them. The pages of the open indexes are among them: the
    caller takes them off while it needs them. Where the system does not say, nothing is refused.
    """
    unified, legacy = _groups_of(membership)
    left = [_left(group, *UNIFIED) for group in _with_parents(cgroup, unified)]
    left += [_left(group, *LEGACY) for group in _with_parents(cgroup / "memory", legacy)]
    return min(_available(meminfo), *left)


def _available(meminfo: Path) -> int:
    try:
        return _numbers(meminfo)["MemAvailable:"] * 1024
    except (OSError, KeyError):
        return sys.maxsize


def _numbers(file: Path) -> dict[str, int]:
    """The second word of each line by its first: `MemAvailable: 2000 kB` or `active_file 40`."""
    lines = file.read_text(encoding="ascii").splitlines()
    return {words[0]: int(words[1]) for line in lines if len(words := line.split()) > 1}


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
    """The folders of a group and of all groups that it is in, since each may have a limit.

    In a container `root` is the group's own folder, and `group` may be a path that only the host knows.
    """
    yield root
    folder = root
    for part in Path(group).parts[1:]:
        if part == "..":
            return
        folder = folder / part
        yield folder


def _left(group: Path, limit_file: str, used_file: str, droppable: tuple[str, str]) -> int:
    """Bytes below the limit of one group; `sys.maxsize` where it has none, "max", or does not say."""
    try:
        limit = int((group / limit_file).read_text(encoding="ascii"))
        used = int((group / used_file).read_text(encoding="ascii"))
        pages = _numbers(group / "memory.stat")
    except (OSError, ValueError):
        return sys.maxsize
    return max(0, limit - used + sum(pages.get(name, 0) for name in droppable))
