"""Bringing mapped pages into memory before a question needs them, and keeping them there.

FAISS maps with MADV_RANDOM. That turns reading ahead off, so that a cold file comes a page at a time, and tells the
system that use is no reason to keep a page (Linux 6.3 and later: vma_has_recency). Both are wrong for an index that is
to stay in memory and be searched all the time.
"""

import ctypes
import mmap
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

PAGE_BYTES = 4096
BLOCK_BYTES = 16 << 20
# Of one call (UIO_MAXIOV).
MOST_RANGES = 1024


def touch(parts: Sequence[NDArray[np.uint8]], report: Callable[[int], None] | None = None) -> None:
    """Read one byte of every page of each of `parts` (bytes,). `report` receives the bytes of each block."""
    for part in parts:
        advise(part, mmap.MADV_NORMAL)
        for start in range(0, part.size, BLOCK_BYTES):
            block = part[start : start + BLOCK_BYTES]
            # without the interpreter's lock: questions go on meanwhile
            int(block[::PAGE_BYTES].max(initial=0))
            int(block[-1])
            if report is not None:
                report(block.size)


def advise(part: NDArray[Any], advice: int) -> None:
    """Tell the system how mapped memory will be read. A hint: where it is not taken, pages come one by one."""
    if part.size:
        start = part.ctypes.data - part.ctypes.data % PAGE_BYTES
        end = part.ctypes.data + part.nbytes
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), advice)


def read_ahead(array: NDArray[Any], rows: NDArray[np.int64]) -> None:
    """Ask the disk for scattered rows of a mapped array at once, where reading them would wait for one page after the
    other.

    In one call of the system, since each call gives the interpreter's lock away. A hint, on Linux 5.10 with glibc 2.36
    and later; elsewhere it does nothing.
    """
    system = ctypes.CDLL(None)
    if not (hasattr(system, "process_madvise") and hasattr(os, "pidfd_open")):
        return
    first = array.ctypes.data + rows * array.strides[0]  # (n,)
    starts = first - first % PAGE_BYTES
    ranges = np.stack([starts, first + array.strides[0] - starts], axis=1).astype(np.uintp)  # (n, 2)
    # a container may forbid it
    with suppress(OSError):
        process = os.pidfd_open(os.getpid())
        try:
            for start in range(0, len(ranges), MOST_RANGES):
                some = ranges[start : start + MOST_RANGES]
                system.process_madvise(process, some.ctypes.data_as(ctypes.c_void_p), len(some), mmap.MADV_WILLNEED, 0)
        finally:
            os.close(process)
