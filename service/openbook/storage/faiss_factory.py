"""Which FAISS indexes Openbook can serve, and what such an index is made of.

Served is what searches inner products, opens by mapping, and has vectors, codes, lists and links that can be compared
with their bounds before the first search: Flat; HNSW over Flat or SQ; IVF over Flat, PQ or SQ codes with a flat or HNSW
coarse quantizer; SQ; PQ; all but HNSW behind linear transforms such as OPQ or PCA.
"""

import re
from pathlib import Path
from typing import Any, Literal

import faiss

from openbook.storage.mapped import reason_of

IndexType = Literal["flat", "hnsw", "ivfpq", "factory"]

# What FAISS's own types for checkers leave out is asked of this.
FAISS: Any = faiss

GRAPHS = (faiss.IndexHNSWFlat, faiss.IndexHNSWSQ)
LISTS = (faiss.IndexIVFFlat, faiss.IndexIVFPQ, faiss.IndexIVFScalarQuantizer)
CODES = (faiss.IndexScalarQuantizer, faiss.IndexPQ)
FLAT = (faiss.IndexFlat, faiss.IndexFlatIP, faiss.IndexFlatL2)
_PLACE = re.compile(r"^Error in .* at \S+:\d+: ")


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
