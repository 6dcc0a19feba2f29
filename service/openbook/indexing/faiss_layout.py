"""FAISS factory strings: the empty index that one makes, and how large it becomes."""

from dataclasses import dataclass
from typing import Any

import faiss

from openbook.errors import SettingInvalid
from openbook.storage.faiss_factory import (
    FAISS,
    FLAT,
    GRAPHS,
    LISTS,
    IndexType,
    core_of,
    essence,
    not_served,
    transforms_of,
    type_of,
)

# Bytes of a row number in a list; of a link, a level and an offset of a graph.
ID_BYTES, LINK_BYTES, LEVEL_BYTES, OFFSET_BYTES = 8, 4, 4, 8
HEAD_BYTES = 256


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


def _graph_bytes(index: Any) -> float:
    """Of a row's links, level and offset: 2 M links on the lowest layer, M on each above, where one of M rows is."""
    if not isinstance(index, FAISS.IndexHNSW):
        return 0.0
    links: int = index.hnsw.nb_neighbors(1)
    return LINK_BYTES * (2 * links + links / (links - 1)) + LEVEL_BYTES + OFFSET_BYTES
