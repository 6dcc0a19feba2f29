"""FAISS factory strings: which of them make an index that Openbook can serve, and what such an index is made of.

Served is what searches inner products, opens by mapping, and has vectors, codes, lists and links that can be compared
with their bounds before the first search: Flat; HNSW over Flat or SQ; IVF over Flat, PQ or SQ codes with a flat or HNSW
coarse quantizer; SQ; PQ; all but HNSW behind linear transforms such as OPQ or PCA.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import faiss

from openbook.errors import SettingInvalid
from openbook.storage.mapped import reason_of

IndexType = Literal["flat", "hnsw", "ivfpq", "factory"]

# What FAISS's own types for checkers leave out is asked of this.
FAISS: Any = faiss

GRAPHS = (faiss.IndexHNSWFlat, faiss.IndexHNSWSQ)
LISTS = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)
CODES = (faiss.IndexScalarQuantizer, faiss.IndexPQ)
FLAT = (faiss.IndexFlat, faiss.IndexFlatIP, faiss.IndexFlatL2)
# Bytes of a row number in a list; of a link, a level and an offset of a graph.
ID_BYTES, LINK_BYTES, LEVEL_BYTES, OFFSET_BYTES = 8, 4, 4, 8
HEAD_BYTES = 256
_PLACE = re.compile(r"^Error in .* at \S+:\d+: ")


@dataclass(frozen=True, slots=True)
class Layout:
    """What an index of a factory string is: its type, whether its vectors come back, whether it learns, its size."""

    index_type: IndexType
    lossy: bool
    trains: bool
    n_lists: int
    has_graph: bool
    bytes_a_vector: float
    fixed_bytes: int

    def index_bytes(self, n_vectors: int) -> int:
        """Of index.faiss with so many vectors, a percent off."""
        return round(self.fixed_bytes + self.bytes_a_vector * n_vectors)


def new_index(factory: str, dimension: int) -> Any:
    """An empty FAISS index. Raises SettingInvalid for what FAISS does not understand or Openbook does not serve."""
    try:
        made: Any = faiss.index_factory(dimension, factory, faiss.METRIC_INNER_PRODUCT)
    except (RuntimeError, TypeError, MemoryError) as error:
        raise SettingInvalid(setting="index", reason=f"FAISS makes nothing of {factory!r}: {essence(error)}") from error
    defect = not_served(made)
    if defect is not None:
        raise SettingInvalid(setting="index", reason=f"{factory!r} cannot be served: {defect}")
    return made


def layout_of(factory: str, dimension: int) -> Layout:
    """Raises what `new_index` raises."""
    index = new_index(factory, dimension)
    core = core_of(index)
    fixed = HEAD_BYTES + sum(4 * one.d_in * one.d_out for one in transforms_of(index))
    n_lists = 0
    if isinstance(core, LISTS):
        n_lists = core.nlist
        vector_bytes = float(core.code_size + ID_BYTES)
        centre_bytes = 4 * core.d
        centres = faiss.downcast_index(core.quantizer)
        fixed += round(n_lists * (centre_bytes + OFFSET_BYTES + _graph_bytes(centres)))
    elif isinstance(core, GRAPHS):
        vector_bytes = FAISS.downcast_index(core.storage).code_size + _graph_bytes(core)
    else:
        vector_bytes = float(core.code_size)
    if isinstance(core, (faiss.IndexIVFPQ, faiss.IndexPQ)):
        fixed += 4 * core.pq.ksub * core.d
    return Layout(
        index_type=type_of(index),
        lossy=not isinstance(index, (*FLAT, faiss.IndexHNSWFlat)),
        trains=not index.is_trained,
        n_lists=n_lists,
        has_graph=isinstance(core, GRAPHS),
        bytes_a_vector=vector_bytes,
        fixed_bytes=fixed,
    )


def not_served(index: Any) -> str | None:
    """Why this FAISS index cannot be served; None for one that can. What it holds is not looked at."""
    core = core_of(index)
    if core is not index:
        strange = [one for one in transforms_of(index) if not isinstance(one, faiss.LinearTransform)]
        if strange:
            return f"its transform {type(strange[0]).__name__} is not linear"
        if not isinstance(core, (*LISTS, *CODES)):
            return f"it is an {type(core).__name__} behind a transform, whose vectors do not come back"
    elif type(core) not in (*FLAT, *GRAPHS, *LISTS, *CODES):
        return f"it is an {type(core).__name__}"
    if index.metric_type != faiss.METRIC_INNER_PRODUCT or index.metric_type != core.metric_type:
        return "it does not search inner products"
    if isinstance(core, LISTS):
        centres = faiss.downcast_index(core.quantizer)
        if type(centres) not in (*FLAT, faiss.IndexHNSWFlat):
            return f"its lists are found by an {type(centres).__name__}"
        if type(lists_of(core)) is not faiss.ArrayInvertedLists:
            return "its lists are not in it"
    return None


def type_of(index: Any) -> IndexType:
    """What the manifest calls an index that is served."""
    core = core_of(index)
    if isinstance(core, FLAT):
        return "flat"
    if isinstance(core, faiss.IndexHNSWFlat):
        return "hnsw"
    return "ivfpq" if isinstance(core, faiss.IndexIVFPQ) else "factory"


def core_of(index: Any) -> Any:
    """What searches: the index itself, or the one behind its transforms."""
    return faiss.downcast_index(index.index) if isinstance(index, faiss.IndexPreTransform) else index


def lists_of(core: Any) -> Any:
    """The lists of an IVF index as what they are; None where it has none."""
    return None if core.invlists is None else faiss.downcast_InvertedLists(core.invlists)


def transforms_of(index: Any) -> list[Any]:
    """The transforms that a vector goes through on its way in, in order."""
    if not isinstance(index, FAISS.IndexPreTransform):
        return []
    return [faiss.downcast_VectorTransform(index.chain.at(number)) for number in range(index.chain.size())]


def essence(error: Exception, path: Path = Path("-")) -> str:
    """FAISS's own sentence without the C++ signature and source line before it, and without the folder of `path`."""
    return _PLACE.sub("", reason_of(error, path)).rpartition("Error: ")[2]


def _graph_bytes(index: Any) -> float:
    """Of a row's links, level and offset: 2 M links on the lowest layer, M on each above, where one of M rows is."""
    if not isinstance(index, FAISS.IndexHNSW):
        return 0.0
    links: int = index.hnsw.nb_neighbors(1)
    return LINK_BYTES * (2 * links + links / (links - 1)) + LEVEL_BYTES + OFFSET_BYTES
