import ctypes
import mmap
import os
import time
from pathlib import Path

import numpy as np
import pytest

from openbook.entities import Passage
from openbook.storage import warming
from openbook.storage.index_store import IndexStore
from openbook.storage.warming import PAGE_BYTES, read_ahead, touch
from tests.fixtures.indexes import publish_tiny

POSIX_FADV_DONTNEED = 4


def in_memory(array: np.ndarray) -> int:
    """How many of the pages of a mapping are, as mincore(2) says."""
    pages = -(-array.size // PAGE_BYTES)
    found = (ctypes.c_ubyte * pages)()
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    assert mincore(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.size), found) == 0
    return sum(one & 1 for one in found)


@pytest.mark.parametrize("size", [1, PAGE_BYTES, 300 * PAGE_BYTES + 17])
@pytest.mark.parametrize("block", [PAGE_BYTES, 7 * PAGE_BYTES, 1 << 24])
def test_all_pages_of_a_cold_mapping_are_brought_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, block: int
) -> None:
    monkeypatch.setattr(warming, "BLOCK_BYTES", block)
    path = tmp_path / "file"
    path.write_bytes(os.urandom(size))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            # as FAISS maps: nothing is read ahead
            mapped.madvise(mmap.MADV_RANDOM)
            array = np.frombuffer(mapped, dtype=np.uint8)
            told: list[int] = []
            touch([array], told.append)
            assert in_memory(array) == -(-size // PAGE_BYTES)
            assert sum(told) == size
            assert max(told) <= block
            del array


def test_scattered_rows_are_brought_in_at_once_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warming, "MOST_RANGES", 5)
    path, n_pages = tmp_path / "file", 300
    path.write_bytes(os.urandom(n_pages * PAGE_BYTES))
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, POSIX_FADV_DONTNEED)
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            mapped.madvise(mmap.MADV_RANDOM)
            # four rows a page and a bit, so that row 11 begins in page 2 and ends in page 3
            array = np.frombuffer(mapped, dtype=np.uint8)[: 1000 * 1100].reshape(1000, 1100)
            rows = np.array([11, *range(100, 900, 100)])
            wanted = len({(row * 1100 + end) // PAGE_BYTES for row in rows.tolist() for end in (0, 1099)})
            assert wanted > len(rows)
            whole = np.frombuffer(mapped, dtype=np.uint8)
            assert in_memory(whole) == 0
            read_ahead(array, rows)
            until = time.monotonic() + 60
            while in_memory(whole) < wanted and time.monotonic() < until:
                time.sleep(0.001)
            assert in_memory(whole) == wanted
            del array, whole


@pytest.mark.parametrize("index_type", ["flat", "hnsw"])
def test_a_warm_index_is_read_ahead_and_its_use_counts(tmp_path: Path, index_type: str) -> None:
    """FAISS maps with MADV_RANDOM, which the kernel shows as "rr"."""
    store = IndexStore(tmp_path)
    # large enough that FAISS has pages of its own to advise on
    vectors = np.random.default_rng(0).standard_normal((2000, 32)).astype(np.float32)
    passages = [Passage(str(row), "", "") for row in range(2000)]
    publish_tiny(store, "tiny-2016", vectors=vectors, passages=passages, index_type=index_type)
    snapshot = store.open("tiny-2016")
    assert any("rr" in flags for flags in advice(tmp_path / "tiny-2016" / "index.faiss"))
    snapshot.warm()
    found = advice(tmp_path / "tiny-2016" / "index.faiss")
    # the file's head may share no page with what is touched
    assert found[-1].count("rr") == 0
    snapshot.close()


def advice(path: Path) -> list[list[str]]:
    """The flags of each mapping of a file."""
    found, ours = [], False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if not line[0].isupper():
            ours = line.endswith(str(path))
        elif line.startswith("VmFlags:") and ours:
            found.append(line.split()[1:])
    return found
