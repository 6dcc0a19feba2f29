"""A search of FAISS among some of the rows: which of them it may find, and when it is better not to ask the graph.

A graph finds rows by walking past their neighbours. Where few rows are allowed, nearly all that it walks past is not,
so a walk looks at more candidates. And where the allowed rows lie far from the question, it ends among others and says
nothing of that. So a walk counts only where it has found as many allowed rows as it has candidates without a filter;
else all allowed rows are compared.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from openbook.storage.faiss_factory import FAISS, FLAT, core_of

# A candidate of a walk takes 3 to 6 us with its 64 links, a row of a scan 0.1 us in the processor's cache and 0.3 us
# beyond it: measured with 100,000 vectors of 384 dimensions.
ROWS_A_CANDIDATE = 16
# Below this share of the rows FAISS is faster with a list of them than with a bit for each: at 1 % of 100,000 six
# times, at 10 % as fast.
SPARSE = 0.1


class Selection:
    """The rows for which `allowed` (N,) is true, as FAISS takes them. Keep it until the search ends: FAISS does not."""

    def __init__(self, allowed: NDArray[np.bool_]) -> None:
        self.allowed = allowed
        self.n_rows = int(np.count_nonzero(allowed))
        self._bits = np.packbits(allowed, bitorder="little")  # (ceil(N / 8),)
        self._kept: list[Any] = []
        self.bitmap = self._keep(FAISS.IDSelectorBitmap(self._bits))

    @property
    def share(self) -> float:
        return self.n_rows / max(1, len(self.allowed))

    def widened(self, number: int, power: float) -> int:
        """`number` of candidates or lists for a search among so few rows."""
        return math.ceil(number / math.pow(max(self.share, 1 / len(self.allowed)), power))

    def is_few(self, n_candidates: int) -> bool:
        """Whether comparing with every allowed row costs less than a walk with so many candidates."""
        return self.n_rows <= ROWS_A_CANDIDATE * n_candidates

    def list(self) -> Any:
        """The selector of a few rows, for vectors alone: codes look each of their rows up in it."""
        rows = self._keep(np.flatnonzero(self.allowed))
        return self._keep(FAISS.IDSelectorArray(rows))

    def _keep(self, one: Any) -> Any:
        self._kept.append(one)
        return one


def scan_parameters(index: Any, chosen: Selection | None) -> Any:
    """For an index that compares with every row: vectors or scalar codes, which may be behind transforms."""
    if chosen is None:
        return None
    core = core_of(index)
    sparse = isinstance(core, FLAT) and chosen.share < SPARSE
    parameters = FAISS.SearchParameters(sel=chosen.list() if sparse else chosen.bitmap)
    return parameters if core is index else FAISS.SearchParametersPreTransform(index_params=parameters)
