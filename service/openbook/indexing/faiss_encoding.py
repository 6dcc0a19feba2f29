"""Vectors to the codes of an IVF-PQ index, and into its lists.

FAISS finds the nearest codeword of each part of a vector one vector at a time, by a loop that is vectorised for parts
of 1, 2, 4 and 8 numbers only. With 6, as 64 bytes of 384 dimensions have, products of small matrices over many vectors
give the same codewords in a third of the time. And it finds the list of a vector through the graph of the centres,
where there is one: for many vectors at once, comparing with every centre is faster and misses none.
"""

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from openbook.storage.faiss_factory import core_of, transforms_of

# Numbers of a part for which FAISS has a fast loop.
FAST_PARTS = (1, 2, 4, 8)
# Small enough that the products with 256 codewords stay in the processor's cache.
BLOCK_ROWS = 1 << 8


class ListFilling:
    """Adds vectors to the lists of a trained index, by several threads. A context manager."""

    def __init__(self, index: Any, n_threads: int) -> None:
        core = core_of(index)
        pq = core.pq
        self._index, self._core = index, core
        self._centres = core.quantizer.reconstruct_n(0, core.nlist)  # (L, d')
        self._nearest = faiss.IndexFlatIP(core.d)
        self._nearest.add(self._centres)
        self._words = faiss.vector_to_array(pq.centroids).reshape(pq.M, pq.ksub, pq.dsub)  # (M, w, s)
        self._half_norms = (self._words**2).sum(axis=2) / 2  # (M, w)
        self._threads: Executor = ThreadPoolExecutor(n_threads)

    @staticmethod
    def suits(index: Any) -> bool:
        """Whether the index has lists of residuals in codes of a byte a part, which FAISS is slow to make."""
        core = core_of(index)
        if not (isinstance(core, faiss.IndexIVFPQ) and core.by_residual and core.pq.nbits == 8):
            return False
        return core.pq.dsub not in FAST_PARTS or isinstance(faiss.downcast_index(core.quantizer), faiss.IndexHNSW)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown()

    def add(self, rows: NDArray[np.float32]) -> None:
        """Add `rows` (b, d) as the index's next, as its own `add` does."""
        for transform in transforms_of(self._index):
            rows = transform.apply(rows)  # (b, d')
        lists = self._nearest.assign(rows, 1)[:, 0]  # (b,)
        parts = (rows - self._centres[lists]).reshape(len(rows), len(self._words), -1)  # (b, M, s)
        n_bytes = self._core.coarse_code_size()
        codes = np.empty((len(rows), n_bytes + len(self._words)), dtype=np.uint8)  # (b, c + M)
        codes[:, :n_bytes] = lists.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :n_bytes]

        def encode(part: int) -> None:
            words = np.ascontiguousarray(self._words[part].T)  # (s, w)
            own = np.ascontiguousarray(parts[:, part])  # (b, s)
            for start in range(0, len(own), BLOCK_ROWS):
                # The nearest word has the largest inner product less half its squared length. Not by BLAS, whose own
                # threads would get in the way of these.
                near = np.einsum("bs,sw->bw", own[start : start + BLOCK_ROWS], words)  # (b', w)
                near -= self._half_norms[part]
                codes[start : start + BLOCK_ROWS, n_bytes + part] = near.argmax(axis=1)

        list(self._threads.map(encode, range(len(self._words))))
        first = self._core.ntotal
        self._core.add_sa_codes(codes, np.arange(first, first + len(rows)))
        self._index.ntotal = self._core.ntotal
