"""How thoroughly a search looks: what the manifest says, changed for one call, within what the index can do."""

from collections.abc import Mapping

from openbook.entities import IndexInfo
from openbook.errors import InvalidRequest
from openbook.storage.manifest import is_lossy

EF_SEARCH, NPROBE, N_CANDIDATES = "efSearch", "nprobe", "candidates"
# What a search looks at where neither the manifest nor the question says: candidates of a graph, and rows that a
# lossy index proposes, to be scored exactly.
HNSW_EF_SEARCH = 128
CANDIDATES = 200
MOST_EF_SEARCH = 16_384
MOST_CANDIDATES = 16_384


def search_parameters(
    info: IndexInfo, changed: Mapping[str, int] | None, *, n_lists: int, has_graph: bool
) -> Mapping[str, int]:
    """The manifest's parameters with those of one call in their place.

    efSearch is for graphs, nprobe for lists, candidates for an index whose rows are scored again. Raises
    InvalidRequest for one that means nothing to this index, and for one out of its bounds.
    """
    bounds = {
        EF_SEARCH: MOST_EF_SEARCH if has_graph else 0,
        NPROBE: n_lists,
        N_CANDIDATES: MOST_CANDIDATES if is_lossy(info.index_type) else 0,
    }
    for name, value in (changed or {}).items():
        most = bounds.get(name, 0)
        if not most:
            raise InvalidRequest(
                "search",
                field=f"search.{name}",
                searched=f"the index {info.version!r} of type {info.index_type}",
                known=", ".join(one for one, bound in bounds.items() if bound) or "none",
            )
        if not 1 <= value <= most:
            raise InvalidRequest(
                field=f"search.{name}", reason=f"must be from 1 to {most:,} for {info.version!r}, not {value:,}"
            )
    return {N_CANDIDATES: CANDIDATES, **info.search, **(changed or {})}
