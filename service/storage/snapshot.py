"""One opened version of the index: its vectors, its passages, its manifest."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from service.entities import IndexInfo, Passage
from service.errors import CanaryFailed, DimensionIncompatible, InvalidRequest, RetrieverUnavailable, TooManyDocs
from service.storage.bm25_index import Bm25Index
from service.storage.faiss_index import FaissIndex
from service.storage.passages import PassageFile

# Two ways to add up one inner product in float32 differ by less than this share of it.
CANARY_TOLERANCE = 1e-4
# (inode, modified in ns, bytes) of the manifest and each file: equal where the very same files are meant.
Identity = tuple[tuple[int, int, int], ...]


class IndexSnapshot:
    """What a question reads from. It never changes: not by a search, and not when its version is published again.

    Any number of threads may read at once. `close` lets go of the mapping; a search that is then under way ends
    well, and a later one raises IndexNotResident.
    """

    def __init__(
        self,
        info: IndexInfo,
        index: FaissIndex,
        passages: PassageFile,
        *,
        identity: Identity = (),
        bm25: Bm25Index | None = None,
    ) -> None:
        self.info = info
        self.identity = identity
        self._index = index
        self._passages = passages
        self._bm25 = bm25

    def __len__(self) -> int:
        return self.info.n_passages

    def search(self, queries: NDArray[np.float32], k: int, *, threads: int = 1) -> NDArray[np.int64]:
        """Rows of the k passages with the largest inner product, best first: (Q, d) -> (Q, k).

        Every entry is a row of this index. One thread by default: answering is parallel over questions, not within
        a search. Raises TooManyDocs for k above the number of passages, DimensionIncompatible for vectors of
        another length.
        """
        if k < 1:
            raise InvalidRequest(field="n_docs", reason=f"at least 1 is needed, not {k}")
        if k > len(self):
            raise TooManyDocs(n_docs=k, version=self.info.version, n_passages=len(self))
        self._check_dimension(queries)
        return self._index.search(queries, k, parameters=self.info.search, threads=threads)

    def vectors(self, rows: Sequence[int]) -> NDArray[np.float32]:
        """The vectors of these rows as stored: (n, d). Raises IndexError for a row that is not there."""
        return self._index.vectors(rows)

    def passages(self, rows: Sequence[int]) -> tuple[Passage, ...]:
        """The passages of these rows, in this order. Raises IndexError for a row that is not there."""
        return self._passages.take(rows)

    def bm25(self) -> Bm25Index:
        """The BM25 scores of the passages, row by row. Raises RetrieverUnavailable for a version without them."""
        if self._bm25 is None:
            raise RetrieverUnavailable(version=self.info.version)
        return self._bm25

    def resident_bytes(self) -> int:
        """Bytes of memory that this snapshot holds once all its pages have been touched: those of its files."""
        return sum(file.bytes for file in self.info.files.values())

    def warm(self, report: Callable[[float], None] | None = None) -> None:
        """Touch every page, check every link, then find the first, the middle and the last passage by their vectors.

        `report` is told the share of the pages that have been touched. What it raises ends the warm-up.

        Where vectors are not normalised, another passage may rightly come first: then its inner product is at least
        that of the vector with itself. Raises CanaryFailed when it is less, IndexUnreadable for a damaged graph.
        """
        self._touch(report)
        # before the first search: a link that leads astray ends the process
        self._index.check_links()
        if self._bm25 is not None:
            self._bm25.check_offsets()
        for row in sorted({0, len(self) // 2, len(self) - 1}):
            own = self._index.vectors([row]).astype(np.float64)  # (1, d)
            found = int(self.search(own.astype(np.float32), 1)[0, 0])
            best = self._index.vectors([found]).astype(np.float64)  # (1, d)
            norm = float((own * own).sum())
            if float((own * best).sum()) < norm - CANARY_TOLERANCE * norm:
                raise CanaryFailed(version=self.info.version, row=row, found=found)
        self.passages([0, len(self) - 1])

    def close(self) -> None:
        """Give the memory back. May be called again."""
        self._index.close()
        self._passages.close()
        if self._bm25 is not None:
            self._bm25.close()

    def _touch(self, report: Callable[[float], None] | None) -> None:
        touched = 0

        def count(n_bytes: int) -> None:
            nonlocal touched
            touched += n_bytes
            if report is not None:
                # the files hold a little more than what is mapped from them: their heads and feet
                report(min(1.0, touched / max(1, self.resident_bytes())))

        self._passages.touch(count)
        self._index.touch(count)
        if self._bm25 is not None:
            self._bm25.touch(count)

    def _check_dimension(self, queries: NDArray[np.float32]) -> None:
        found = queries.shape[-1] if queries.ndim == 2 else 0
        if found != self.info.dimension:
            raise DimensionIncompatible(
                version=self.info.version, index_dimension=self.info.dimension, encoder_dimension=found
            )
