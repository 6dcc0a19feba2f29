"""A version whose vectors lie in a Milvus database. Passages, BM25 and filters are files of this machine, as ever.

So a filter means the same to the byte, and a score is computed here, exactly, from the vectors that the database gives.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.plugins.milvus.collection import Collection, in_list
from openbook.storage.mapped import checked_rows
from openbook.storage.search_parameters import N_CANDIDATES
from openbook.storage.snapshot import IndexSnapshot, Nearest, best_first, exact_products
from openbook.storage.vectors import slices

# Where a filter lets a share p of the rows pass, the nearest c / p of all rows hold c such on average. A search takes
# WIDER times as many, up to MOST_WIDENED: beyond, their numbers alone cost the client seconds.
WIDER, MOST_WIDENED = 2, 4096
# Beyond that, a request lists the rows that pass, at most so many.
LISTED_ROWS = 1 << 15


class MilvusSnapshot(IndexSnapshot):
    """The database proposes rows; which are the best follows from their vectors, as stored."""

    def __init__(self, *, collection: Collection, **opened: Any) -> None:
        super().__init__(**opened)
        self._collection = collection

    def vectors(self, rows: Sequence[int]) -> NDArray[np.float32]:
        return self._collection.vectors(checked_rows(rows, len(self)))

    def check_ready(self) -> None:
        super().check_ready()
        self._collection.check()

    def close(self) -> None:
        self._collection.close()
        super().close()

    def _warm_vectors(self, count: Callable[[int], None]) -> None:
        """The database has loaded them; text is meant to stay on the disk."""

    def _nearest(
        self, queries: NDArray[np.float32], k: int, chosen: Mapping[str, int], allowed: NDArray[np.bool_] | None
    ) -> list[Nearest]:
        n_rows = len(self) if allowed is None else int(np.count_nonzero(allowed))
        # the database adds up in float32: of two near rows it may take the wrong one for the k-th
        n_proposed = min(n_rows, max(k, chosen[N_CANDIDATES]))
        if allowed is None:
            proposed = self._collection.search(queries, n_proposed)
        else:
            proposed = self._among(queries, n_proposed, allowed)
        nearest = []
        for query, (rows, vectors) in zip(queries, proposed, strict=True):
            # of equal ones the lower row comes first
            rising = np.argsort(checked_rows(rows, len(self)))  # (c,)
            nearest.append(best_first(rows[rising], exact_products(query, vectors[rising]), k))
        return nearest

    def _among(
        self, queries: NDArray[np.float32], n_proposed: int, allowed: NDArray[np.bool_]
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """The nearest `n_proposed` of the allowed rows of each query, or some more, and their vectors."""
        rows = np.flatnonzero(allowed)  # (n,)
        if len(rows) == n_proposed:
            return [(rows, self._collection.vectors(rows))] * len(queries)
        n_widened = min(len(self), WIDER * n_proposed * len(self) // len(rows))
        if n_widened <= MOST_WIDENED:
            found = [near[allowed[near]][:n_proposed] for near in self._collection.rows(queries, n_widened)]
            if min(map(len, found)) == n_proposed:
                return [(near, self._collection.vectors(near)) for near in found]
        absent = np.flatnonzero(~allowed)
        if len(absent) < min(len(rows), LISTED_ROWS):
            return self._collection.search(queries, n_proposed, in_list(absent, absent=True))
        parts = [rows[part] for part in slices(len(rows), LISTED_ROWS)]
        found_in = [self._collection.search(queries, min(n_proposed, len(part)), in_list(part)) for part in parts]
        return [
            (np.concatenate([near for near, _ in several]), np.concatenate([vectors for _, vectors in several]))
            for several in zip(*found_in, strict=True)
        ]
