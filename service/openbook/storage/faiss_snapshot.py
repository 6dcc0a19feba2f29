"""A version whose vectors lie in files of this machine: searched by FAISS, mapped."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.errors import IndexCorrupt
from openbook.storage.faiss_index import FaissIndex, read_whole
from openbook.storage.manifest import INDEX_FILE, is_lossy
from openbook.storage.search_parameters import N_CANDIDATES
from openbook.storage.snapshot import IndexSnapshot, Nearest, best_first, exact_products
from openbook.storage.vectors import SLICE_ROWS, VectorFile, slices


class FaissSnapshot(IndexSnapshot):
    """Finds rows by FAISS. A lossy index proposes them; which are the best follows from `vectors`, beside it."""

    def __init__(self, *, index: FaissIndex, vectors: VectorFile | None = None, **opened: Any) -> None:
        super().__init__(**opened)
        self._index = index
        self._vectors = vectors
        self._lossy = vectors is not None
        self._knobs = (index.n_lists, index.has_graph)

    @property
    def ef_construction(self) -> int | None:
        """How many candidates were looked at when a vector of the graph was linked; None without a graph."""
        return self._index.ef_construction

    def index(self) -> Any:
        """The FAISS index in memory, to be added to. Raises IndexCorrupt for a damaged one."""
        self.check_whole()
        self._index.check_links()
        return read_whole(self._folder / INDEX_FILE)

    def masked_but(self, kept: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The places of `index` to mask where only the rows `kept` (N,) stay, rising: (M,)."""
        return self._index.masked_but(kept)

    def vectors(self, rows: Sequence[int]) -> NDArray[np.float32]:
        return self._index.vectors(rows) if self._vectors is None else self._vectors.take(rows)

    def vector_slices(self, slice_rows: int = SLICE_ROWS) -> Iterator[NDArray[np.float32]]:
        if self._vectors is None:
            yield from super().vector_slices(slice_rows)
        else:
            yield from map(self._vectors.block, slices(len(self), slice_rows))

    def close(self) -> None:
        self._index.close()
        if self._vectors is not None:
            self._vectors.close()
        super().close()

    def _nearest(
        self, queries: NDArray[np.float32], k: int, chosen: Mapping[str, int], allowed: NDArray[np.bool_] | None
    ) -> list[Nearest]:
        if self._vectors is None:
            found = self._index.search(queries, k, parameters=chosen, allowed=allowed)  # (Q, k)
            if (found < 0).any():
                # FAISS compares products, and no comparison with NaN holds
                raise IndexCorrupt("file", version=self.info.version, file=INDEX_FILE, reason="a vector is not finite.")
            return [best_first(rows, self.products(query, rows), k) for query, rows in zip(queries, found, strict=True)]
        n_rows = len(self) if allowed is None else int(np.count_nonzero(allowed))
        n_proposed = min(n_rows, max(k, chosen[N_CANDIDATES]))
        if allowed is not None and (n_proposed == n_rows or not self._index.can_choose):
            # all are candidates, whatever their codes
            proposed = np.broadcast_to(np.flatnonzero(allowed), (len(queries), n_rows))  # (Q, C)
        else:
            proposed = self._index.search(queries, n_proposed, least=k, parameters=chosen, allowed=allowed)  # (Q, C)
        return [self._best(query, rows, k, allowed) for query, rows in zip(queries, proposed, strict=True)]

    def _best(
        self, query: NDArray[np.float32], rows: NDArray[np.int64], k: int, allowed: NDArray[np.bool_] | None
    ) -> Nearest:
        """Of the rows that the index proposes, -1 being none, the k with the largest exact inner products."""
        rows = rows[rows >= 0]  # (c,)
        if len(rows) < k:
            # the index is of no help: (N,)
            rows = np.arange(len(self)) if allowed is None else np.flatnonzero(allowed)
        # in float64, as the scores of the prior: both must see the same order
        scores = [exact_products(query, self.vectors(rows[part].tolist())) for part in slices(len(rows))]
        return best_first(rows, np.concatenate(scores), k)

    def _warm_vectors(self, count: Callable[[int], None]) -> None:
        # beside short codes, text and vectors are meant to stay on the disk
        if not is_lossy(self.info.index_type):
            self._passages.touch(count)
        self._index.touch(count)
        # before the first search: a link that leads astray ends the process
        self._index.check_links()
