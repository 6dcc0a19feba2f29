"""Arrays in NumPy's format 1.0, and vectors.npy among them: the vectors of a lossy index in float16.

An inner product with them is exact for what is stored.
"""

import mmap
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.errors import IndexCorrupt
from openbook.storage.manifest import VECTORS_FILE
from openbook.storage.mapped import Mapped, checked_rows, reason_of
from openbook.storage.warming import advise, read_ahead

SLICE_ROWS = 1 << 14
HEAD_BYTES = 256
# More rows than a search proposes come in order, which the system reads ahead by itself.
READ_AHEAD_ROWS = 1 << 12
# A row in memory takes a tenth of that, one on a fast disk twenty times as long.
COLD_ROW_S = 5e-6


def slices(n_rows: int, slice_rows: int = SLICE_ROWS) -> Iterator[slice]:
    """0 ... n_rows in steps, so that no more than a step is ever in memory."""
    for start in range(0, n_rows, slice_rows):
        yield slice(start, min(n_rows, start + slice_rows))


def map_array(path: Path, dtype: str, version: str) -> NDArray[Any]:
    """Map an array that numpy.save wrote row by row. Raises IndexCorrupt for anything else."""
    try:
        array = np.lib.format.open_memmap(path, mode="r", max_header_size=HEAD_BYTES)
    except OSError as error:
        raise IndexCorrupt("file", version=version, file=path.name, reason=reason_of(error, path)) from error
    except Exception as error:
        # NumPy's parser raises anything for a damaged head
        raise IndexCorrupt("file", version=version, file=path.name, reason="it is no array of NumPy's") from error
    if array.dtype.str != dtype or not array.flags.c_contiguous:
        raise IndexCorrupt(
            "file", version=version, file=path.name, reason=f"it is no array of {np.dtype(dtype)} in rows"
        )
    return np.asarray(array)


class VectorFile(Mapped[NDArray[np.float16]]):
    """An opened vectors.npy of N rows of d numbers, mapped rather than read."""

    def __init__(self, array: NDArray[np.float16], *, version: str) -> None:
        super().__init__(array, version=version)
        # whether the last reader waited for the disk
        self._is_cold = True

    @classmethod
    def open(cls, path: Path, *, shape: tuple[int, int], version: str) -> "VectorFile":
        """Map the file. Raises IndexCorrupt for anything but an array of this shape in float16."""
        array = map_array(path, "<f2", version)
        if array.shape != shape:
            raise IndexCorrupt(
                "file",
                version=version,
                file=VECTORS_FILE,
                reason=f"it is no array of {shape[0]} x {shape[1]} in float16",
            )
        # questions read single rows, so pages around them are of no use
        advise(array, mmap.MADV_RANDOM)
        return cls(array, version=version)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of these rows: (n, d). Raises IndexError for a row that is not there."""
        array = self._still_open()
        wanted = checked_rows(rows, len(array))
        began = time.perf_counter()
        if self._is_cold and len(wanted) <= READ_AHEAD_ROWS:
            read_ahead(array, wanted)
        found = array[wanted].astype(np.float32)  # (n, d)
        self._is_cold = time.perf_counter() - began > COLD_ROW_S * len(wanted)
        return found

    def block(self, part: slice) -> NDArray[np.float32]:
        """The vectors of a run of rows, which is read ahead: (b, d)."""
        block = self._still_open()[part]
        advise(block, mmap.MADV_WILLNEED)
        return block.astype(np.float32)
