"""Chooses the FAISS index for so many passages in so much memory, and estimates what it takes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from openbook.errors import SettingInvalid
from openbook.indexing.bm25_build import estimated_bytes
from openbook.indexing.faiss_layout import layout_of
from openbook.storage.search_parameters import CANDIDATES, HNSW_EF_SEARCH

GIGABYTE = 1e9

# Up to so many passages, comparing with each takes milliseconds: a graph does not pay off.
FLAT_PASSAGES = 50_000
# The share of the memory that an index may take. The models take the rest, and a second version during a swap.
MEMORY_SHARE = 0.4
# Of 100 words with a title and an id, as in DPR's psgs_w100.tsv: 13 GB of 21 million.
PASSAGE_BYTES = 700

HNSW_LINKS = 32  # M: links of a vector in the layers above the lowest; twice as many in the lowest
HNSW_EF_CONSTRUCTION = 200  # candidates looked at when a vector is linked

CODE_BYTES = 64  # of one vector in the lists of IVF-PQ; its row number takes 8 more
CODEWORDS = 256  # of each byte of a code
LISTS = 65_536  # at most: above, finding the nearest lists costs more than it saves
FINE_LISTS = 16_384  # from here on, the nearest lists are found through a graph of their centres
TRAIN_A_LIST = 48  # vectors of the sample for each list; FAISS warns below 39
NPROBE_SHARE = 64  # one of so many lists is looked at by a search

# The numbers that a user may give to each type.
NUMBERS = {
    "flat": (),
    "hnsw": ("m", "ef_construction", "ef_search"),
    "ivfpq": ("nlist", "nprobe", "code_bytes", "candidates"),
    "factory": ("ef_construction", "ef_search", "nprobe", "candidates"),
}
_BOUNDS = {
    "m": (2, 256),
    "ef_construction": (8, 4096),
    "ef_search": (1, 16_384),
    "nlist": (1, 1 << 20),
    "nprobe": (1, 1 << 20),
    "code_bytes": (1, 1024),
    "candidates": (1, 16_384),
}


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """How to build and search an index; `reason` is one sentence: why this one, for these numbers.

    `factory` is the FAISS factory string that makes it. A `lossy` index cannot give vectors back, so a file beside it
    keeps them in float16. `build` holds efConstruction, or `train`, the size of the training sample. `search` goes
    into the manifest: efSearch or nprobe, and for a lossy index `candidates`, the rows that are scored exactly. An
    `adopted` index is a finished file, which is copied.
    """

    index_type: str
    factory: str
    lossy: bool
    build: Mapping[str, int] = field(default_factory=dict)
    search: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class IndexEstimate:
    """Bytes, a few percent off. `disk_bytes` is the published version, `building_bytes` the most on the disk while it
    is made, with the work folder, `resident_bytes` the memory that a service needs for it."""

    index_bytes: int
    vectors_bytes: int
    passages_bytes: int
    disk_bytes: int
    building_bytes: int
    resident_bytes: int


def choose_index(
    requested: str, *, n_passages: int, dimension: int, memory_bytes: int | None, **numbers: int | None
) -> IndexSpec:
    """The index for `requested`: auto, flat, hnsw, ivfpq or a FAISS factory string such as "IVF4096,SQ8".

    `auto` goes by the number of passages and by `memory_bytes`, what the machine has for everything; None is no limit.
    `numbers` are m, ef_construction, ef_search, nlist, nprobe, code_bytes and candidates; None is our choice. Raises
    SettingInvalid for a number that is out of bounds or means nothing to the type, and for a factory string that
    FAISS does not understand or whose index could not be opened by mapping.
    """
    if n_passages < 1 or dimension < 1:
        raise SettingInvalid(setting="index", reason=f"{n_passages} vectors of {dimension} dimensions are no index")
    given = {name: value for name, value in numbers.items() if value is not None}
    chosen, reason = requested, f"{requested} was asked for"
    if requested == "auto":
        chosen, reason = _by_size(n_passages, dimension, memory_bytes)
    index_type = chosen if chosen in ("flat", "hnsw", "ivfpq") else "factory"
    _check_numbers(index_type, given)
    factories = {"flat": "Flat", "hnsw": f"HNSW{given.get('m', HNSW_LINKS)}"}
    if index_type == "ivfpq":
        factories["ivfpq"] = _ivfpq_factory(n_passages, dimension, given)
    return _of_factory(factories.get(index_type, chosen), n_passages, dimension, given, reason)


def estimate(spec: IndexSpec, *, n_passages: int, dimension: int, text_bytes: int, bm25: bool = False) -> IndexEstimate:
    """What `spec` takes for so many passages; `text_bytes` is their ids, titles and texts in UTF-8. `bm25` adds its
    files, which are less certain than the rest."""
    layout = layout_of(spec.factory, dimension)
    index_bytes = layout.index_bytes(n_passages)
    vectors_bytes = 128 + 2 * n_passages * dimension if spec.lossy else 0
    # three columns, with an offset of four bytes a row each
    passages_bytes = text_bytes + 12 * n_passages + 4096
    bm25_bytes = estimated_bytes(text_bytes)[0] if bm25 else 0
    disk_bytes = index_bytes + vectors_bytes + passages_bytes + bm25_bytes
    raw_bytes = n_passages * dimension * (2 if spec.lossy else 4)
    # a flat index is written slice by slice; of another, the old state stays until the new one is written
    saved_bytes = 0 if spec.index_type == "flat" or spec.adopted else 2 * index_bytes
    sample_bytes = 4 * dimension * spec.build.get("train", 0)
    return IndexEstimate(
        index_bytes=index_bytes,
        vectors_bytes=vectors_bytes,
        passages_bytes=passages_bytes,
        disk_bytes=disk_bytes,
        building_bytes=disk_bytes + raw_bytes + passages_bytes + saved_bytes + sample_bytes,
        resident_bytes=bm25_bytes + (index_bytes if spec.lossy else index_bytes + passages_bytes),
    )


def _by_size(n_passages: int, dimension: int, memory_bytes: int | None) -> tuple[str, str]:
    if n_passages <= FLAT_PASSAGES:
        return "flat", f"{n_passages:,} passages are few: comparing with each of them is exact and takes milliseconds"
    graph_bytes = layout_of(f"HNSW{HNSW_LINKS}", dimension).index_bytes(n_passages) + PASSAGE_BYTES * n_passages
    needed = f"a graph over {n_passages:,} passages of {dimension} dimensions takes {graph_bytes / GIGABYTE:,.1f} GB"
    if memory_bytes is None:
        return "hnsw", f"{needed}, and no limit on memory is known"
    share = f"{MEMORY_SHARE:.0%} of this machine's {memory_bytes / GIGABYTE:,.1f} GB of memory"
    if graph_bytes <= MEMORY_SHARE * memory_bytes:
        return "hnsw", f"{needed}, which fits in {share}"
    return "ivfpq", f"{needed}, more than {share}: short codes stay in memory and the vectors on the disk"


def _check_numbers(index_type: str, given: Mapping[str, int]) -> None:
    for name, value in given.items():
        if name not in _BOUNDS:
            raise SettingInvalid(setting=name, reason="is no number of an index")
        low, high = _BOUNDS[name]
        if not low <= value <= high:
            raise SettingInvalid(setting=name, reason=f"must be from {low:,} to {high:,}, not {value:,}")
        if name not in NUMBERS[index_type]:
            known = ", ".join(NUMBERS[index_type]) or "no numbers"
            raise SettingInvalid(setting=name, reason=f"means nothing to an index of type {index_type}: it has {known}")


def _ivfpq_factory(n_passages: int, dimension: int, given: Mapping[str, int]) -> str:
    if n_passages < CODEWORDS:
        raise SettingInvalid(
            setting="index", reason=f"ivfpq learns {CODEWORDS} codewords and needs as many passages, not {n_passages}"
        )
    code_bytes = given.get("code_bytes", min(CODE_BYTES, max(1, dimension // 2)))
    if code_bytes > dimension:
        raise SettingInvalid(
            setting="code_bytes", reason=f"{code_bytes} bytes for vectors of {dimension} dimensions would be no saving"
        )
    nlist = given.get("nlist", _lists(n_passages))
    if nlist > n_passages:
        raise SettingInvalid(setting="nlist", reason=f"{nlist:,} lists for {n_passages:,} passages")
    rotated = code_bytes * (dimension // code_bytes)
    centres = "_HNSW32" if nlist >= FINE_LISTS else ""
    return f"OPQ{code_bytes}_{rotated},IVF{nlist}{centres},PQ{code_bytes}"


def _lists(n_passages: int) -> int:
    """A power of two near 4 √N, with enough vectors to train each."""
    wanted = min(4 * math.sqrt(n_passages), n_passages / TRAIN_A_LIST, LISTS)
    return 1 << max(0, round(math.log2(max(1.0, wanted))))


def _of_factory(factory: str, n_passages: int, dimension: int, given: Mapping[str, int], reason: str) -> IndexSpec:
    layout = layout_of(factory, dimension)
    build: dict[str, int] = {}
    search: dict[str, int] = {}
    if layout.trains:
        build["train"] = min(n_passages, max(TRAIN_A_LIST * layout.n_lists, CODEWORDS * CODEWORDS))
    if layout.n_lists:
        nprobe = given.get("nprobe", max(8, layout.n_lists // NPROBE_SHARE))
        search["nprobe"] = min(nprobe, layout.n_lists)
    elif "nprobe" in given:
        raise SettingInvalid(setting="nprobe", reason=f"{factory} has no lists")
    if layout.has_graph:
        build["efConstruction"] = given.get("ef_construction", HNSW_EF_CONSTRUCTION)
        search["efSearch"] = given.get("ef_search", HNSW_EF_SEARCH)
    elif "ef_search" in given or "ef_construction" in given:
        raise SettingInvalid(setting="ef_search", reason=f"{factory} has no graph of vectors")
    if layout.lossy:
        search["candidates"] = given.get("candidates", CANDIDATES)
    elif "candidates" in given:
        raise SettingInvalid(setting="candidates", reason=f"{factory} keeps the vectors: all it finds is exact")
    return IndexSpec(layout.index_type, factory, layout.lossy, build, search, reason)
