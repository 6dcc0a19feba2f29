"""The seam between the engine and an index: what answering a question reads of one version, wherever it lies."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Filter, IndexInfo, Passage
from openbook.storage.bm25_index import Bm25Index


class Nearest(NamedTuple):
    """The rows of one search, best first, and their exact inner products: of equal ones, the row found first."""

    rows: NDArray[np.int64]  # (K,)
    products: NDArray[np.float64]  # (K,)


class ReadableIndex(Protocol):
    """N passages and their vectors of d numbers. It never changes, and any number of threads may read it at once."""

    @property
    def info(self) -> IndexInfo: ...

    def __len__(self) -> int: ...

    def search(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        parameters: Mapping[str, int] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> NDArray[np.int64]:
        """Rows of the k passages with the largest inner product, best first: (Q, d) -> (Q, k)."""
        ...

    def nearest(
        self,
        queries: NDArray[np.float32],
        k: int,
        *,
        parameters: Mapping[str, int] | None = None,
        allowed: NDArray[np.bool_] | None = None,
    ) -> list[Nearest]:
        """The same, each with its exact inner product."""
        ...

    def products(self, query: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Exact inner products of a vector (d,) with the stored vectors of these rows: (n,)."""
        ...

    def bm25(self) -> Bm25Index:
        """The search by words, with its exact scores."""
        ...

    def allowed(self, chosen: Filter) -> NDArray[np.bool_]:
        """Which rows pass a filter: (N,)."""
        ...

    def passages(self, rows: Sequence[int]) -> tuple[Passage, ...]:
        """The passages of these rows, in this order."""
        ...
