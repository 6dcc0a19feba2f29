"""vectors.npy: the vectors of a lossy index in float16, so that an inner product is exact for what is stored."""

import io
import mmap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.errors import IndexFileSizeWrong, IndexNotResident, IndexUnreadable, SourceInvalid
from openbook.storage.manifest import VECTORS_FILE

SLICE_ROWS = 1 << 14
LARGEST = float(np.finfo(np.float16).max)


def slices(n_rows: int, slice_rows: int = SLICE_ROWS) -> Iterator[slice]:
    """0 ... n_rows in steps, so that no more than a step is ever in memory."""
    for start in range(0, n_rows, slice_rows):
        yield slice(start, min(n_rows, start + slice_rows))


def write_vectors(
    path: Path, vectors: NDArray[np.float32], version: str, report: Callable[[int], None] | None = None
) -> None:
    """Write `vectors` (N, d), rounded to float16, as a NumPy array file. `report` is told the rows written so far.

    Raises SourceInvalid for a vector with a number that float16 does not reach.
    """
    n_rows, dimension = vectors.shape
    with path.open("wb") as file:
        file.write(_head(n_rows, dimension))
        for part in slices(n_rows):
            block = np.asarray(vectors[part])  # (b, d)
            outside = np.flatnonzero((np.abs(block) > LARGEST).any(axis=1))
            if outside.size:
                row = part.start + outside[0]
                raise SourceInvalid(source=version, reason=f"the vector of row {row} is too long for float16")
            file.write(np.ascontiguousarray(block, dtype="<f2").tobytes())
            if report is not None:
                report(part.stop)


class VectorFile:
    """An opened vectors.npy of N rows of d numbers, mapped rather than read."""

    def __init__(self, array: NDArray[np.float16], mapping: mmap.mmap, *, version: str) -> None:
        self._opened: tuple[NDArray[np.float16], mmap.mmap] | None = (array, mapping)
        self._version = version
        self.n_vectors, self.dimension = array.shape

    @classmethod
    def open(cls, path: Path, *, n_vectors: int, dimension: int, version: str) -> "VectorFile":
        """Map the file. Raises IndexUnreadable, IndexFileSizeWrong where it is not what `write_vectors` writes."""
        head = _head(n_vectors, dimension)
        expected = len(head) + 2 * n_vectors * dimension
        try:
            with path.open("rb") as file:
                found = file.read(len(head))
                size = path.stat().st_size
                mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise IndexUnreadable(version=version, file=VECTORS_FILE, reason=str(error)) from error
        if found != head:
            raise IndexUnreadable(
                version=version, file=VECTORS_FILE, reason=f"it is no array of {n_vectors} x {dimension} in float16"
            )
        if size != expected:
            raise IndexFileSizeWrong(version=version, file=VECTORS_FILE, found=size, expected=expected)
        # rows are read one here, one there: what lies around them is not wanted
        mapping.madvise(mmap.MADV_RANDOM)
        array = np.frombuffer(mapping, dtype="<f2", offset=len(head)).reshape(n_vectors, dimension)
        return cls(array, mapping, version=version)

    def take(self, rows: Sequence[int] | NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of these rows: (n, d). Raises IndexError for a row that is not there."""
        array, _ = self._still_open()
        wanted = np.asarray(rows, dtype=np.int64)  # (n,)
        outside = wanted[(wanted < 0) | (wanted >= self.n_vectors)]
        if outside.size:
            raise IndexError(f"row {outside[0]} of {self.n_vectors}")
        return array[wanted].astype(np.float32)

    def block(self, part: slice) -> NDArray[np.float32]:
        """The vectors of a run of rows, which is read ahead: (b, d)."""
        array, mapping = self._still_open()
        row_bytes = 2 * self.dimension
        start = (len(mapping) - self.n_vectors * row_bytes + part.start * row_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
        mapping.madvise(mmap.MADV_WILLNEED, start, (part.stop - part.start) * row_bytes)
        return array[part].astype(np.float32)

    def close(self) -> None:
        """Let go of the mapping. May be called again."""
        self._opened = None

    def _still_open(self) -> tuple[NDArray[np.float16], mmap.mmap]:
        opened = self._opened
        if opened is None:
            raise IndexNotResident(version=self._version, resident=())
        return opened


def _head(n_vectors: int, dimension: int) -> bytes:
    """Of the one way in which such an array is written."""
    head = io.BytesIO()
    description = {"descr": "<f2", "fortran_order": False, "shape": (n_vectors, dimension)}
    np.lib.format.write_array_header_1_0(head, description)
    return head.getvalue()
