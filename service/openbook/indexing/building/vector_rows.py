"""The vectors of a build: one array on the disk, as large as it will be from the beginning, filled row by row."""

import errno
import hashlib
import io
import os
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Precision = Literal["float32", "float16"]
BLOCK_BYTES = 4 << 20


class VectorRows:
    """A .npy file of shape (N, d). Rows are written in place and are durable when `write` returns."""

    def __init__(self, path: Path, n_rows: int, dimension: int, precision: Precision) -> None:
        """Make the file, or take the one that is there. Raises OSError where the disk has no room for all of it."""
        self.path = path
        self.dtype = np.dtype(precision)
        self._shape = (n_rows, dimension)
        header = _header(self._shape, self.dtype)
        self._start = len(header)
        self._row_bytes = dimension * self.dtype.itemsize
        size = self._start + n_rows * self._row_bytes
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if os.fstat(self._descriptor).st_size != size or os.pread(self._descriptor, len(header), 0) != header:
            _reserve(self._descriptor, size)
            os.pwrite(self._descriptor, header, 0)
            os.fsync(self._descriptor)

    def write(self, first: int, vectors: NDArray[np.float32]) -> str:
        """Put `vectors` (n, d) into the rows from `first` on. Returns their sha256 as they lie there."""
        content = np.ascontiguousarray(vectors, dtype=self.dtype).reshape(-1).view(np.uint8).data
        offset, written = self._start + first * self._row_bytes, 0
        while written < len(content):
            written += os.pwrite(self._descriptor, content[written:], offset + written)
        os.fdatasync(self._descriptor)
        return hashlib.sha256(content).hexdigest()

    def sha256(self, first: int, n_rows: int) -> str:
        """Of the bytes of `n_rows` rows from `first` on, as they lie there."""
        digest = hashlib.sha256()
        offset = self._start + first * self._row_bytes
        left = n_rows * self._row_bytes
        while left and (block := os.pread(self._descriptor, min(left, BLOCK_BYTES), offset)):
            digest.update(block)
            offset, left = offset + len(block), left - len(block)
        return digest.hexdigest()

    def mapped(self) -> NDArray[np.float32]:
        """All rows, mapped: (N, d). What is not needed is not read."""
        return np.load(self.path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]

    def close(self) -> None:
        os.close(self._descriptor)


def _header(shape: tuple[int, int], dtype: np.dtype[np.generic]) -> bytes:
    file = io.BytesIO()
    description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, description)
    return file.getvalue()


def _reserve(descriptor: int, size: int) -> None:
    """Take the room now: a build must not find the disk full after days."""
    os.ftruncate(descriptor, 0)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
        # a file system that reserves nothing
        os.ftruncate(descriptor, size)
