"""The arrays and numbers of a FAISS index: what is to be warmed, and whether a search could be led out of it.

FAISS believes a file: a list that claims more codes than it has, a centre that is missing, a link that leads nowhere,
and a search reads memory that is not the index's, which ends the process. So before the first search every number by
which FAISS finds something is compared with the others, and with the factory string where it is known.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from openbook.errors import SettingInvalid
from openbook.storage.faiss_factory import (
    FAISS,
    FLAT,
    GRAPHS,
    LISTS,
    LONGEST_FACTORY,
    core_of,
    lists_of,
    new_index,
    transforms_of,
)

# Numbers that a scalar quantizer learns for each dimension, or in all; others learn none.
_LEARNED_BY_DIMENSION = ("QT_8bit", "QT_4bit", "QT_6bit")
_LEARNED_IN_ALL = ("QT_8bit_uniform", "QT_4bit_uniform")
_LEARNED_NONE = ("QT_fp16", "QT_bf16", "QT_8bit_direct", "QT_8bit_direct_signed")
# Lists lie one behind the other: their pages are one part, unless so much lies between that they cannot.
BETWEEN = 1.1
# No number of a factory string is larger, but for lists and dimensions; "x" stands before the bits of a code.
LARGEST_NUMBER, MOST_BITS = 1024, 16
_NUMBERS = re.compile(r"(x?)(\d+)", re.ASCII)
# Small enough that gathering a block, which keeps the interpreter's lock, holds no question up.
BLOCK_ROWS = 1 << 14


def mapped_parts(index: Any) -> list[NDArray[np.uint8]]:
    """What is large of a served index, as bytes: vectors, codes, links, lists."""
    core = core_of(index)
    if isinstance(core, LISTS):
        lists = lists_of(core)
        return _run_of([part for number in range(lists.nlist) for part in _list_of(lists, number)])
    if isinstance(core, GRAPHS):
        hnsw: Any = core.hnsw
        parts = [FAISS.downcast_index(core.storage).codes, hnsw.neighbors, hnsw.offsets]
    else:
        parts = [core.codes]
    return [_bytes_of(part) for part in parts]


def defect_of(index: Any, factory: str = "") -> str | None:
    """The first number that does not fit; None for an index that can be searched. Reads lists and links once."""
    core = core_of(index)
    return (
        _defect_of_training(index, core)
        or _defect_of_transforms(index, core)
        or _defect_of_codes(core)
        or _defect_of_factory(index, core, factory)
        or (_defect_of_lists(core) if isinstance(core, LISTS) else None)
        or (_defect_of_graph(core) if isinstance(core, GRAPHS) else None)
    )


def _defect_of_training(index: Any, core: Any) -> str | None:
    # FAISS refuses to search it
    if not all(part.is_trained for part in (index, core, *transforms_of(index))):
        return "it has not been trained"
    return None


def _defect_of_transforms(index: Any, core: Any) -> str | None:
    dimension = index.d
    for transform in transforms_of(index):
        sizes = (transform.A.size(), transform.b.size())
        biases = transform.d_out if transform.have_bias else 0
        if transform.d_in != dimension or sizes[0] != transform.d_in * transform.d_out or sizes[1] < biases:
            return "a transform of its vectors does not fit them"
        dimension = transform.d_out
    if core.d != dimension or core.ntotal != index.ntotal:
        return "what it searches is not what its vectors are transformed to"
    return None


def _defect_of_codes(core: Any) -> str | None:
    if isinstance(core, (faiss.IndexIVFPQ, faiss.IndexPQ)):
        pq = core.pq
        if (
            pq.d != core.d
            or pq.M < 1
            or pq.dsub * pq.M != core.d
            or not 1 <= pq.nbits <= MOST_BITS
            or pq.ksub != 1 << pq.nbits
            or pq.centroids.size() != core.d * pq.ksub
            or pq.code_size != (pq.nbits * pq.M + 7) // 8
            or core.code_size != pq.code_size
        ):
            return "its codewords are not those of its codes"
        if isinstance(core, FAISS.IndexPQ) and core.search_type != FAISS.IndexPQ.ST_PQ:
            return "it is searched in another way than Openbook builds it for"
    if isinstance(core, (faiss.IndexIVFScalarQuantizer, faiss.IndexScalarQuantizer)):
        defect = _defect_of_scalar(core.sq, core.d, core.code_size)
        if defect is not None:
            return defect
    if isinstance(core, faiss.IndexIVFFlat) and core.code_size != 4 * core.d:
        return "its vectors are not of its dimension"
    if isinstance(core, (*FLAT, faiss.IndexPQ, faiss.IndexScalarQuantizer)):
        return _defect_of_rows(core)
    return None


def _defect_of_scalar(quantizer: Any, dimension: int, code_size: int) -> str | None:
    learned = {getattr(faiss.ScalarQuantizer, name): 2 * dimension for name in _LEARNED_BY_DIMENSION}
    learned |= {getattr(faiss.ScalarQuantizer, name): 2 for name in _LEARNED_IN_ALL}
    learned |= {getattr(faiss.ScalarQuantizer, name, -1): 0 for name in _LEARNED_NONE}
    if quantizer.qtype not in learned or quantizer.d != dimension:
        return "its codes are of a kind that is not known"
    sound = faiss.ScalarQuantizer(dimension, quantizer.qtype).code_size
    if quantizer.code_size != sound or code_size != sound or quantizer.trained.size() != learned[quantizer.qtype]:
        return "its codes are not of their length"
    return None


def _defect_of_rows(core: Any) -> str | None:
    if isinstance(core, FLAT) and core.code_size != 4 * core.d:
        return "its vectors are not of its dimension"
    if core.codes.size() != core.ntotal * core.code_size:
        return f"it has not as many vectors as its {core.ntotal} rows"
    return None


def _defect_of_factory(index: Any, core: Any, factory: str) -> str | None:
    """A file may be sound in itself and yet another index than the manifest's."""
    if not factory:
        return None
    # FAISS allocates what a string says, which may be more than there is: IVF1000000000, PQ1x24
    most = max(getattr(core, "nlist", 0), LARGEST_NUMBER, 4 * index.d)
    numbers = _NUMBERS.findall(factory[:LONGEST_FACTORY])
    if any(int(number) > (MOST_BITS if bits else most) for bits, number in numbers):
        return f"it is not what {factory[:LONGEST_FACTORY]!r} makes"
    try:
        expected = new_index(factory, index.d)
    except SettingInvalid:
        return f"its manifest says that it was made by {factory[:LONGEST_FACTORY]!r}, which makes no index"
    if _described(index, core) != _described(expected, core_of(expected)):
        return f"it is not what {factory!r} makes"
    return None


def _described(index: Any, core: Any) -> tuple[object, ...]:
    described: list[object] = [(one.d_in, one.d_out) for one in transforms_of(index)]
    described += [_kind(core), core.d, getattr(core, "nlist", 0)]
    if isinstance(core, LISTS):
        described.append(_kind(faiss.downcast_index(core.quantizer)))
    if isinstance(core, (faiss.IndexIVFPQ, faiss.IndexPQ)):
        described += [core.pq.M, core.pq.nbits]
    if isinstance(core, (faiss.IndexIVFScalarQuantizer, faiss.IndexScalarQuantizer)):
        described.append(core.sq.qtype)
    return tuple(described)


def _kind(index: Any) -> type:
    return faiss.IndexFlat if isinstance(index, FLAT) else type(index)


def graph_of(core: Any) -> "Graph":
    """The graph of an index, unchecked: views of its arrays, which go with the index."""
    hnsw = core.hnsw
    arrays = {
        name: faiss.rev_swig_ptr(part.data(), part.size())
        for name, part in (("levels", hnsw.levels), ("offsets", hnsw.offsets), ("neighbors", hnsw.neighbors))
    }
    return Graph(
        **arrays,
        per_layer=faiss.vector_to_array(hnsw.cum_nneighbor_per_level),
        entry_point=hnsw.entry_point,
        max_level=hnsw.max_level,
    )


def _defect_of_graph(core: Any) -> str | None:
    graph, storage = graph_of(core), faiss.downcast_index(core.storage)
    defect = graph.defect()
    if not isinstance(storage, (*FLAT, faiss.IndexScalarQuantizer)) or (
        (storage.ntotal, storage.d, storage.metric_type) != (core.ntotal, core.d, core.metric_type)
    ):
        return "its vectors are not those of its graph"
    if len(graph.levels) != core.ntotal:
        return f"its graph is of {len(graph.levels)} rows where it holds {core.ntotal}"
    return defect or _defect_of_codes(storage)


def _defect_of_lists(core: Any) -> str | None:
    centres, lists = faiss.downcast_index(core.quantizer), lists_of(core)
    if (centres.ntotal, centres.d) != (core.nlist, core.d) or lists.nlist != core.nlist:
        return f"it has {centres.ntotal} centres for {core.nlist} lists"
    if lists.code_size != core.code_size:
        return "its lists hold codes of another length"
    defect = _defect_of_graph(centres) if hasattr(centres, "hnsw") else _defect_of_codes(centres)
    if defect is not None:
        return f"the centres of its lists: {defect}"
    if core.direct_map.type != FAISS.DirectMap.NoMap:
        return "it has a map of its rows, which Openbook never writes"
    sizes = [lists.list_size(number) for number in range(core.nlist)]
    if sum(sizes) != core.ntotal:
        return f"its lists hold {sum(sizes)} rows where it has {core.ntotal}"
    seen = np.zeros(core.ntotal, dtype=bool)  # (N,)
    for number, size in enumerate(sizes):
        if not size:
            continue
        rows = faiss.rev_swig_ptr(lists.get_ids(number), size)  # (s,)
        if int(rows.min()) < 0 or int(rows.max()) >= core.ntotal:
            return f"list {number} leads to none of its {core.ntotal} rows"
        seen[rows] = True
    if not seen.all():
        return f"row {int(np.argmin(seen))} is in none of its lists"
    return None


def _list_of(lists: Any, number: int) -> Iterator[NDArray[np.uint8]]:
    size = lists.list_size(number)
    if size:
        yield faiss.rev_swig_ptr(lists.get_codes(number), size * lists.code_size)
        yield faiss.rev_swig_ptr(lists.get_ids(number), size).view(np.uint8)


def _run_of(parts: list[NDArray[np.uint8]]) -> list[NDArray[np.uint8]]:
    """The parts as one, where they lie one behind the other as in a file; as they are where they do not."""
    if not parts:
        return []
    starts = [part.ctypes.data for part in parts]
    first, end = min(starts), max(start + part.size for start, part in zip(starts, parts, strict=True))
    if end - first > BETWEEN * sum(part.size for part in parts):
        return parts
    return [np.lib.stride_tricks.as_strided(parts[starts.index(first)], shape=(end - first,), strides=(1,))]


def _bytes_of(vector: Any) -> NDArray[np.uint8]:
    return np.asarray(faiss.rev_swig_ptr(vector.data(), vector.size()).view(np.uint8))


@dataclass(frozen=True, slots=True)
class Graph:
    """The arrays of an HNSW graph of N rows, as FAISS lays them out.

    No release of FAISS so far checks that a linked row is on the layer of the link. The check reads the graph once, as
    a warm-up does anyway.

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
