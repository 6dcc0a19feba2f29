import sys
from pathlib import Path

import pytest

from service.api.memory import free_memory

MEMINFO = "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:    2000000 kB\n"


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO, encoding="ascii")
    return path


def cgroup(folder: Path, limit: str, current: str = "3000", stat: str = "anon 1000\ninactive_file 500\nactive_file 40\nshmem 3\n") -> Path:
    folder.mkdir()
    for name, text in (("max", limit), ("current", current), ("stat", stat)):
        (folder / f"memory.{name}").write_text(text, encoding="ascii")
    return folder


def test_without_a_container_it_is_what_the_system_calls_available(meminfo: Path, tmp_path: Path) -> None:
    assert free_memory(meminfo, tmp_path / "none") == 2_000_000 * 1024
    assert free_memory(meminfo, cgroup(tmp_path / "cgroup", "max\n")) == 2_000_000 * 1024


def test_a_containers_limit_counts_without_the_pages_that_can_be_dropped(meminfo: Path, tmp_path: Path) -> None:
    assert free_memory(meminfo, cgroup(tmp_path / "cgroup", "4000\n")) == 4000 - 3000 + 540


def test_a_container_above_its_limit_has_nothing_left(meminfo: Path, tmp_path: Path) -> None:
    assert free_memory(meminfo, cgroup(tmp_path / "cgroup", "1000\n")) == 0


def test_where_the_system_does_not_say_nothing_is_refused(tmp_path: Path) -> None:
    assert free_memory(tmp_path / "none", tmp_path / "none") == sys.maxsize
    (tmp_path / "meminfo").write_text("MemTotal: 1 kB\n", encoding="ascii")
    assert free_memory(tmp_path / "meminfo", tmp_path / "none") == sys.maxsize


def test_this_machine_has_memory() -> None:
    assert free_memory() > 0
