import os
import sys
from pathlib import Path

import pytest

from openbook.api.memory import MEMINFO as MEMINFO_OF_THE_SYSTEM
from openbook.api.memory import free_memory

AVAILABLE = 2_000_000 * 1024
MEMINFO = "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:    2000000 kB\n"


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO, encoding="ascii")
    return path


def cgroup(
    folder: Path,
    limit: str,
    current: str = "3000",
    stat: str = "anon 1000\ninactive_file 500\nactive_file 40\nshmem 3\n",
) -> Path:
    folder.mkdir()
    for name, text in (("max", limit), ("current", current), ("stat", stat)):
        (folder / f"memory.{name}").write_text(text, encoding="ascii")
    return folder


@pytest.mark.parametrize(
    ("limit", "free"), [(None, AVAILABLE), ("max\n", AVAILABLE), ("4000\n", 4000 - 3000 + 540), ("1000\n", 0)]
)
def test_a_limit_counts_without_the_pages_that_can_be_dropped(
    meminfo: Path, tmp_path: Path, limit: str | None, free: int
) -> None:
    group = tmp_path / "cgroup"
    assert free_memory(meminfo, cgroup(group, limit) if limit is not None else group) == free


def test_where_the_system_does_not_say_nothing_is_refused(tmp_path: Path) -> None:
    assert free_memory(tmp_path / "none", tmp_path / "none") == sys.maxsize
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\n", encoding="ascii")
    assert free_memory(tmp_path / "meminfo", tmp_path / "none") == sys.maxsize


@pytest.mark.skipif(not MEMINFO_OF_THE_SYSTEM.exists(), reason="the system does not say what it has available")
def test_what_this_machine_has_is_read_and_less_than_all_its_memory() -> None:
    assert 0 < free_memory() <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # a limit on the process must not hide that the system's own word could not be read
    assert free_memory(cgroup=Path("nowhere")) < sys.maxsize


def test_a_group_inside_another_is_held_to_the_tighter_of_the_two(meminfo: Path, tmp_path: Path) -> None:
    """As a service of systemd with MemoryMax, which the root of the tree knows nothing of."""
    membership = tmp_path / "self"
    membership.write_text("0::/system.slice/openbook.service\n", encoding="ascii")
    root = tmp_path / "cgroup"
    root.mkdir()
    cgroup(root / "system.slice", "5000\n")
    cgroup(root / "system.slice" / "openbook.service", "max\n")
    assert free_memory(meminfo, root, membership) == 5000 - 3000 + 540
    (root / "system.slice" / "openbook.service" / "memory.max").write_text("4000\n", encoding="ascii")
    assert free_memory(meminfo, root, membership) == 4000 - 3000 + 540


@pytest.mark.parametrize("inside", [True, False])
def test_the_first_version_of_control_groups_counts_as_well(meminfo: Path, tmp_path: Path, inside: bool) -> None:
    """Whether the whole tree is seen, or only the container's own group under the name of the tree."""
    membership = tmp_path / "self"
    membership.write_text("9:name=systemd:/\n4:cpu,memory:/docker/abc\n0::/\n", encoding="ascii")
    group = tmp_path / "cgroup" / "memory" / ("" if inside else "docker/abc")
    group.mkdir(parents=True)
    stat = "cache 9\ninactive_file 1\nactive_file 1\ntotal_inactive_file 500\ntotal_active_file 40\n"
    for name, text in (("limit_in_bytes", "4000\n"), ("usage_in_bytes", "3000\n"), ("stat", stat)):
        (group / f"memory.{name}").write_text(text, encoding="ascii")
    assert free_memory(meminfo, tmp_path / "cgroup", membership) == 4000 - 3000 + 540
    (group / "memory.limit_in_bytes").write_text("9223372036854771712\n", encoding="ascii")
    assert free_memory(meminfo, tmp_path / "cgroup", membership) == AVAILABLE
