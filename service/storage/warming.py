"""Bringing mapped pages into memory before a question needs them.

FAISS maps with MADV_RANDOM, which is right for searching and turns reading ahead off: a page at a time from the disk.
So each block is asked for as a whole (MADV_WILLNEED) while the one before it is touched.
"""

import ctypes
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES = 4096
BLOCK_BYTES = 16 << 20
MADV_WILLNEED = 3


def touch(parts: Sequence[NDArray[np.uint8]], report: Callable[[int], None] | None = None) -> None:
    """Read one byte of every page of each of `parts` (bytes,). `report` is told the bytes of each block."""
    for part in parts:
        _read_ahead(part[:BLOCK_BYTES])
        for start in range(0, part.size, BLOCK_BYTES):
            _read_ahead(part[start + BLOCK_BYTES : start + 2 * BLOCK_BYTES])
            block = part[start : start + BLOCK_BYTES]
            # without the interpreter's lock: questions go on meanwhile
            int(block[::PAGE_BYTES].max(initial=0))
            if block.size:
                int(block[-1])
            if report is not None:
                report(block.size)


def _read_ahead(block: NDArray[np.uint8]) -> None:
    """A hint: where the system does not take it, pages come one by one."""
    if not block.size:
        return
    address = block.ctypes.data
    start = address - address % PAGE_BYTES
    madvise = ctypes.CDLL(None).madvise
    madvise(ctypes.c_void_p(start), ctypes.c_size_t(address + block.size - start), MADV_WILLNEED)
