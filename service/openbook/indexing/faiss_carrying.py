"""What an update takes of the base's index: the graph without the vectors that go, or what it has learned.

FAISS's HNSW deletes nothing, and making a graph anew takes longer than all else in an update. A link to a vector that
goes is dropped here, and each adding fills such gaps again. A vector that loses many links is linked to the neighbours
of those that it has lost.

Rotation, centres and codewords fit what is like the text that they were learned from. An update fills new lists by
them, since learning takes longer than filling.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import faiss
import numpy as np
from numpy.typing import NDArray

from openbook.indexing.index_spec import IndexSpec
from openbook.storage.faiss_factory import core_of, new_index
from openbook.storage.faiss_parts import Graph
from openbook.storage.vectors import slices

# An index that has lost and gained more than this share of its vectors since it was made as a whole is made anew.
LARGEST_SHARE = 0.25
# A vector that has lost so many of its links is given others.
LOST_SHARE = 0.25
BLOCK_ROWS = 1 << 16


class Carried(Protocol):
    """What an update takes of the base's index."""

    def begun(self, spec: IndexSpec, vectors: NDArray[np.float32]) -> Any:
        """A FAISS index of the first n of `vectors` (N, d), to which the others are to be added; n may be 0."""
        ...


@dataclass(frozen=True, slots=True)
class CarriedTraining:
    """`learned` makes an empty index that has learned what the base's has."""

    learned: Callable[[], Any]

    def begun(self, spec: IndexSpec, vectors: NDArray[np.float32]) -> Any:
        return self.learned()


@dataclass(frozen=True, slots=True)
class CarriedGraph:
    """The graph of a base, and the rows of the base (n,) that stay, in their order: the first n rows of the update."""

    graph: Graph
    kept: NDArray[np.int64]

    def begun(self, spec: IndexSpec, vectors: NDArray[np.float32]) -> Any:
        links, levels, offsets = self._links(vectors)
        index = new_index(spec.factory, vectors.shape[1])
        core = core_of(index)
        for part in slices(len(self.kept)):
            core.storage.add(np.ascontiguousarray(vectors[part], dtype=np.float32))
        core.ntotal = len(self.kept)
        faiss.copy_array_to_vector(levels, core.hnsw.levels)
        faiss.copy_array_to_vector(offsets.astype(np.uint64), core.hnsw.offsets)
        faiss.copy_array_to_vector(links, core.hnsw.neighbors)
        # where a search begins: any vector of the highest level that is left
        core.hnsw.entry_point = int(levels.argmax())
        core.hnsw.max_level = int(levels.max()) - 1
        core.hnsw.efConstruction, core.hnsw.efSearch = spec.build["efConstruction"], spec.search["efSearch"]
        return index

    def _links(self, vectors: NDArray[np.float32]) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]:
        """The links between what stays, of each level to the left; the levels (n,); where links begin (n + 1,)."""
        graph, kept = self.graph, self.kept
        renamed = np.full(len(graph.levels), -1, dtype=np.int32)  # (N,)
        renamed[kept] = np.arange(len(kept))
        levels = graph.levels[kept]  # (n,)
        offsets = np.concatenate([[0], np.cumsum(graph.per_layer[levels])])  # (n + 1,)
        links = np.full(offsets[-1], -1, dtype=np.int32)
        hurt: list[int] = []
        for height in np.unique(levels).tolist():
            places = np.arange(graph.per_layer[height])  # (w,)
            of_height = np.flatnonzero(levels == height)
            for part in slices(len(of_height), BLOCK_ROWS):
                rows = of_height[part]  # (b,)
                before = graph.neighbors[graph.offsets[kept[rows]].astype(np.int64)[:, None] + places]  # (b, w)
                block = np.where(before >= 0, renamed[before], -1)  # (b, w)
                for level in range(height):
                    area = slice(graph.per_layer[level], graph.per_layer[level + 1])
                    order = np.argsort(block[:, area] < 0, axis=1, kind="stable")
                    block[:, area] = np.take_along_axis(block[:, area], order, axis=1)
                links[offsets[rows][:, None] + places] = block
                lowest = slice(0, graph.per_layer[1])
                had = (before[:, lowest] >= 0).sum(axis=1)  # (b,)
                lost = had - (block[:, lowest] >= 0).sum(axis=1)  # (b,)
                hurt += rows[(lost > 0) & (lost >= LOST_SHARE * had)].tolist()
        for row in hurt:
            self._mend(row, links, offsets, renamed, vectors)
        return links, levels, offsets

    def _mend(
        self,
        row: int,
        links: NDArray[np.int32],
        offsets: NDArray[np.int64],
        renamed: NDArray[np.int32],
        vectors: NDArray[np.float32],
    ) -> None:
        """Fill the places of lost links with the nearest neighbours of those that were lost, and link them back."""
        graph, width = self.graph, int(self.graph.per_layer[1])

        def lowest(base_row: int) -> NDArray[np.int32]:
            start = int(graph.offsets[base_row])
            found = graph.neighbors[start : start + width]
            return found[found >= 0]

        before = lowest(int(self.kept[row]))
        lost = before[renamed[before] < 0]
        own = links[offsets[row] : offsets[row] + width]
        have = own[own >= 0]
        near = renamed[np.unique(np.concatenate([lowest(int(one)) for one in lost]))]
        near = np.setdiff1d(near[near >= 0], [*have, row])
        scores = vectors[near].astype(np.float32) @ vectors[row].astype(np.float32)  # (c,)
        chosen = near[np.argsort(-scores)[: min(len(lost), width - len(have))]]
        own[len(have) : len(have) + len(chosen)] = chosen
        for other in chosen.tolist():
            theirs = links[offsets[other] : offsets[other] + width]
            free = np.flatnonzero(theirs < 0)
            if free.size and row not in theirs:
                theirs[free[0]] = row
