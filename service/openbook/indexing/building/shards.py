"""What a build keeps of its passages and vectors: shards of passages, and the rows of vectors.npy."""

import errno
import hashlib
import io
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.storage.passages import PLAIN, PassageFields, passages_of

Precision = Literal["float32", "float16"]


@dataclass(frozen=True, slots=True)
class Shard:
    """Passages first, first + 1, ... first + n_passages - 1.

    The source continues after `taken` passages of the batch that follows `mark`. `skipped` counts what the source had
    left out up to `mark`. `fields` says what its passages hold beside their text.
    """

    number: int
    first: int
    n_passages: int
    text_bytes: int
    sha256: str
    mark: str | None
    taken: int
    skipped: Mapping[str, int]
    fields: PassageFields = PLAIN


def read_shard(path: Path) -> list[Passage]:
    """The passages of a shard's file."""
    with pa.memory_map(str(path), "r") as source:
        return passages_of(pa.ipc.open_file(source).read_all())


def text_bytes(passages: Iterable[Passage]) -> int:
    """Bytes of their ids, titles, texts and other fields in UTF-8."""

    def extra(one: Passage) -> str:
        values = (one.url, one.section, one.published, *(value for _, value in one.metadata))
        return "".join(str(value) for value in values if value is not None)

    return sum(len(f"{one.passage_id}{one.title}{one.text}{extra(one)}".encode()) for one in passages)


class VectorRows:
    """A .npy file of shape (N, d), full size from the beginning. `write` fills rows in place and syncs them."""

    def __init__(self, path: Path, n_rows: int, dimension: int, precision: Precision) -> None:
        """Make the file, or open the one that is there. Raises OSError when the disk has no room for all of it."""
        self._path = path
        self._dtype = np.dtype(precision)
        header = io.BytesIO()
        description = np.lib.format.header_data_from_array_1_0(np.empty((0, dimension), dtype=self._dtype))
        np.lib.format.write_array_header_1_0(header, description | {"shape": (n_rows, dimension)})
        head = header.getvalue()
        self._start = len(head)
        self._row_bytes = dimension * self._dtype.itemsize
        size = self._start + n_rows * self._row_bytes
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if os.fstat(self._descriptor).st_size != size or os.pread(self._descriptor, len(head), 0) != head:
            _reserve(self._descriptor, size)
            os.pwrite(self._descriptor, head, 0)
            os.fsync(self._descriptor)

    def write(self, first: int, vectors: NDArray[np.float32]) -> str:
        """Put `vectors` (n, d) into the rows from `first` on. Returns the sha256 of their bytes in the file.

        Raises SourceInvalid for a number that is not finite, or beyond what the file's precision reaches.
        """
        # one too large for float16 becomes infinite
        with np.errstate(over="ignore"):
            stored = np.ascontiguousarray(vectors, dtype=self._dtype)
        strange = np.flatnonzero(~np.isfinite(stored).all(axis=1))
        if strange.size:
            reason = f"that of row {first + strange[0]} is not finite in {self._dtype}"
            raise SourceInvalid(source="vectors", reason=reason)
        content = _bytes_of(stored)
        offset, written = self._start + first * self._row_bytes, 0
        while written < len(content):
            written += os.pwrite(self._descriptor, content[written:], offset + written)
        os.fdatasync(self._descriptor)
        return hashlib.sha256(content).hexdigest()

    def sha256(self, first: int, n_rows: int) -> str:
        """The sha256 of the bytes of `n_rows` rows from `first` on, as they are in the file."""
        return hashlib.sha256(_bytes_of(self.mapped()[first : first + n_rows])).hexdigest()

    def mapped(self) -> NDArray[np.float32]:
        """All rows, memory-mapped: (N, d)."""
        return np.load(self._path, mmap_mode="r", allow_pickle=False)  # type: ignore[no-any-return]

    def close(self) -> None:
        os.close(self._descriptor)


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _reserve(descriptor: int, size: int) -> None:
    """Allocate the file now: a build must not find the disk full after days. Rows that are there stay."""
    os.ftruncate(descriptor, size)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        # such a file system allocates nothing in advance
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
