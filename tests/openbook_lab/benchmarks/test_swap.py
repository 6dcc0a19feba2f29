import mmap
import sys
from pathlib import Path

import numpy as np
import pytest

from openbook.storage.faiss_index import IndexType
from openbook.storage.index_store import IndexStore
from openbook_lab.benchmarks.children import memory, silent
from openbook_lab.benchmarks.swap import STAGES, measure_swaps, pace
from openbook_lab.benchmarks.synthetic import build_versions


def test_the_gap_is_the_longest_time_in_which_no_read_ended() -> None:
    found = pace([(0.0, 0.1), (0.1, 0.2), (0.2, 0.9), (0.9, 1.0), (1.0, 5.0)], 0.0, 1.2)
    assert found.reads == 4
    assert found.p99_ms == pytest.approx(700)
    assert found.longest_gap_ms == pytest.approx(700)


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
def test_memory_of_our_own_and_of_files_is_told_apart(tmp_path: Path) -> None:
    before = memory()
    # pages that nobody has had: an array could get memory that an earlier test gave back to this process
    own = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    own.write(b"1" * len(own))
    (tmp_path / "file").write_bytes(bytes(16 << 20))
    between = memory()
    mapped = np.memmap(tmp_path / "file", dtype=np.uint8, mode="r")
    assert int(mapped.sum()) == 0
    after = memory()
    assert between.anonymous - before.anonymous >= len(own) * 0.9
    assert after.file_mapped - between.file_mapped >= mapped.size * 0.9


@pytest.mark.parametrize("index_type", ["flat", "hnsw"])
def test_both_policies_are_measured_in_every_stage(index_type: IndexType, tmp_path: Path) -> None:
    build_versions(silent, tmp_path, 200, 16, index_type)
    said: list[tuple[int, int | None, str]] = []
    report = measure_swaps(
        IndexStore(tmp_path), swaps=2, cold=True, quiet_s=0.1, progress=lambda *told: said.append(told)
    )
    stages, readers, memories = report.tables
    assert stages.columns[2:] == STAGES
    assert [row[:2] for row in stages.rows] == [(p, n) for p in ("availability", "resource") for n in (1, 2)]
    assert all(isinstance(row[stages.columns.index("total")], float) for row in stages.rows)
    assert [row[0] for row in readers.rows] == ["availability", "resource"]
    assert {"before", "opened", "warmed", "after the swap", "closed"} <= {str(row[1]) for row in memories.rows}
    assert said[-1] == (2, 2, "resource")
    assert report.facts["passages"] == 200
