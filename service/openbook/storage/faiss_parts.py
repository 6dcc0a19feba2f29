"""The arrays of a FAISS index: what is to be warmed, and whether a search could be led out of them.

A flipped bit in a row number or a link makes FAISS read memory that is not the index's, which ends the process. So
before the first search each of these is compared with its bounds.
"""

from collections.abc import Iterator
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from openbook.storage.faiss_factory import FAISS, GRAPHS, LISTS, core_of, lists_of, transforms_of
from openbook.storage.vectors import slices

# Lists lie one behind the other: their pages are one part, unless so much lies between that they cannot.
BETWEEN = 1.1
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
    return [_view(part).view(np.uint8) for part in parts]


def defect_of(index: Any) -> str | None:
    """What would lead a search out of the index; None for an index that can be searched. Reads lists and links once."""
    core = core_of(index)
    trained = all(part.is_trained for part in (index, core, *transforms_of(index)))
    if not trained or core.ntotal != index.ntotal:
        return "it has not been trained, or not filled"
    if isinstance(core, LISTS):
        return _defect_of_lists(core)
    return _defect_of_graph(core) if isinstance(core, GRAPHS) else _defect_of_codes(core)


def _defect_of_codes(core: Any) -> str | None:
    if core.codes.size() != core.ntotal * core.code_size or core.sa_code_size() != core.code_size:
        return f"it has not as many vectors as its {core.ntotal} rows"
    return None


def _defect_of_lists(core: Any) -> str | None:
    centres, lists = faiss.downcast_index(core.quantizer), lists_of(core)
    if not (centres.ntotal == core.nlist == lists.nlist and centres.d == core.d):
        return f"it has {centres.ntotal} centres for {core.nlist} lists"
    defect = _defect_of_graph(centres) if hasattr(centres, "hnsw") else _defect_of_codes(centres)
    if defect is not None:
        return f"the centres of its lists: {defect}"
    sizes = [lists.list_size(number) for number in range(core.nlist)]
    if sum(sizes) != core.ntotal:
        return f"its lists hold {sum(sizes)} rows where it has {core.ntotal}"
    for number, size in enumerate(sizes):
        if size and _outside(faiss.rev_swig_ptr(lists.get_ids(number), size), core.ntotal):
            return f"list {number} leads to none of its {core.ntotal} rows"
    return None


def _defect_of_graph(core: Any) -> str | None:
    """Row i is on layers 0 ... levels[i] - 1. Its links on layer l are neighbors[offsets[i] + per_layer[l] :
    offsets[i] + per_layer[l + 1]], where -1 is none. A walk begins at the entry point, on the uppermost layer.
    """
    hnsw, storage, n_rows = core.hnsw, faiss.downcast_index(core.storage), core.ntotal
    levels, offsets, neighbors = _view(hnsw.levels), _view(hnsw.offsets), _view(hnsw.neighbors)
    per_layer = faiss.vector_to_array(hnsw.cum_nneighbor_per_level)  # (layers + 1,)
    if (storage.ntotal, storage.d, storage.metric_type, len(levels)) != (n_rows, core.d, core.metric_type, n_rows):
        return "its vectors are not those of its graph"
    if per_layer[0] != 0 or (np.diff(per_layer) < 0).any():
        return "the layers of its graph are out of order"
    if levels.min(initial=1) < 1 or levels.max(initial=1) >= len(per_layer):
        return "a row is on a layer that its graph does not have"
    if len(offsets) != n_rows + 1 or offsets[0] != 0 or offsets[-1] != len(neighbors):
        return "its rows and its links do not add up"
    for part in slices(n_rows, BLOCK_ROWS):
        steps = np.diff(offsets[part.start : part.stop + 1].astype(np.int64))  # (b,)
        if (steps != per_layer[levels[part]]).any():
            return "a row does not have the links of its layers"
    entry, top = hnsw.entry_point, hnsw.max_level
    if n_rows and not (0 <= entry < n_rows and 0 <= top < levels[entry]):
        return f"its graph is entered at row {entry} of {n_rows}, on layer {top}"
    if _outside(neighbors, n_rows, least=-1):
        return f"a link of its graph leads to none of its {n_rows} rows"
    for layer in range(1, int(levels.max(initial=1))):
        links = np.arange(per_layer[layer], per_layer[layer + 1])  # (M,)
        upper = np.flatnonzero(levels > layer)  # (r,)
        for part in slices(len(upper), BLOCK_ROWS):
            linked = neighbors[offsets[upper[part], None].astype(np.int64) + links]  # (b, M)
            # -1 takes the level of the last row here, and is masked
            if ((linked >= 0) & (levels[linked] <= layer)).any():
                return f"a link of its graph on layer {layer} leads to a row that is not there"
    return _defect_of_codes(storage)


def _outside(rows: NDArray[Any], n_rows: int, least: int = 0) -> bool:
    return bool(rows.min(initial=least) < least or rows.max(initial=least) >= n_rows)


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


def _view(vector: Any) -> NDArray[Any]:
    """A C++ vector without a copy; it goes with the index."""
    return np.asarray(faiss.rev_swig_ptr(vector.data(), vector.size()))
