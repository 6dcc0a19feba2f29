"""Whether the graph of an HNSW index can be walked: no link leads out of it, on any layer.

FAISS follows links unlooked: one flipped byte in a link and a search reads memory that is not the index's, which ends
the process. Releases of FAISS differ in how much of this they check themselves when they read a file; none so far
looks at which layers a linked row is on. The whole check reads the graph once, as a warm-up does anyway.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Small enough that gathering a block, which keeps the interpreter's lock, holds no question up.
BLOCK_ROWS = 1 << 14


@dataclass(frozen=True, slots=True)
class Graph:
    """The arrays of an HNSW graph of N rows, as FAISS lays them out.

    Row i is on layers 0 ... levels[i] - 1. Its links on layer l are neighbors[offsets[i] + per_layer[l] :
    offsets[i] + per_layer[l + 1]], where -1 is none. A walk begins at `entry_point`, on layer `max_level`.
    """

    levels: NDArray[np.int32]  # (N,)
    offsets: NDArray[np.uint64]  # (N + 1,)
    neighbors: NDArray[np.int32]  # (offsets[N],)
    per_layer: NDArray[np.int32]  # (layers + 1,)
    entry_point: int
    max_level: int

    def defect(self) -> str | None:
        """The first thing that would lead a walk astray; None for a sound graph."""
        return self._defect_of_layout() or self._defect_of_links()

    def _defect_of_layout(self) -> str | None:
        n_rows = len(self.levels)
        steps = np.diff(self.per_layer)
        if not len(steps) or self.per_layer[0] != 0 or (steps < 0).any():
            return "the layers of its graph are out of order"
        if len(self.offsets) != n_rows + 1 or self.offsets[0] != 0 or self.offsets[-1] != len(self.neighbors):
            return "its rows and its links do not add up"
        if int(self.levels.min(initial=1)) < 1 or int(self.levels.max(initial=1)) > len(steps):
            return "a row is on a layer that its graph does not have"
        for start in range(0, n_rows, BLOCK_ROWS):
            offsets = self.offsets[start : start + BLOCK_ROWS + 1].astype(np.int64)  # (b + 1,)
            if (np.diff(offsets) != self.per_layer[self.levels[start : start + BLOCK_ROWS]]).any():
                return "a row does not have the links of its layers"
        if n_rows and not 0 <= self.entry_point < n_rows:
            return f"its graph is entered at row {self.entry_point} of {n_rows}"
        if n_rows and not 0 <= self.max_level < self.levels[self.entry_point]:
            return f"its graph is entered on layer {self.max_level}, where row {self.entry_point} is not"
        return None

    def _defect_of_links(self) -> str | None:
        n_rows = len(self.levels)
        if int(self.neighbors.min(initial=-1)) < -1 or int(self.neighbors.max(initial=-1)) >= n_rows:
            return f"a link of its graph leads to none of its {n_rows} rows"
        for layer in range(1, int(self.levels.max(initial=1))):
            links = np.arange(self.per_layer[layer], self.per_layer[layer + 1])  # (M,)
            upper = np.flatnonzero(self.levels > layer)  # (r,)
            for start in range(0, len(upper), BLOCK_ROWS):
                offsets = self.offsets[upper[start : start + BLOCK_ROWS]].astype(np.int64)  # (b,)
                linked = self.neighbors[offsets[:, None] + links]  # (b, M)
                # -1 takes the level of the last row here, and is masked
                if ((linked >= 0) & (self.levels[linked] <= layer)).any():
                    return f"a link of its graph on layer {layer} leads to a row that is not there"
        return None
