"""Every number by which FAISS finds something in an index of codes or lists, wrong one at a time."""

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import pytest

from openbook.indexing.faiss_building import build_index
from openbook.indexing.index_spec import choose_index
from openbook.storage.faiss_factory import core_of, layout_of, not_served
from openbook.storage.faiss_parts import defect_of, mapped_parts

N, DIMENSION = 400, 8


def built(factory: str) -> Any:
    vectors = np.random.default_rng(0).standard_normal((N, DIMENSION)).astype(np.float32)
    spec = choose_index(factory, n_passages=N, dimension=DIMENSION, memory_bytes=None)
    return build_index(vectors, spec, n_threads=1)


FACTORIES = [
    "Flat",
    "HNSW8",
    "HNSW8,SQ8",
    "SQ8",
    "PQ4x4",
    "RR8,IVF8,PQ4x4",
    "IVF8_HNSW4,SQ8",
    "IVF8,Flat",
    "PCA4,SQfp16",
]


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_sound_index_has_no_defect_and_its_parts_are_what_is_large(factory: str) -> None:
    index = built(factory)
    assert not_served(index) is None
    assert defect_of(index, factory) is None
    large = layout_of(factory, DIMENSION).bytes_a_vector * N
    assert sum(part.size for part in mapped_parts(index)) == pytest.approx(large, rel=0.1)


def set_transform(index: Any) -> None:
    faiss.downcast_VectorTransform(index.chain.at(0)).d_out = 7


def set_id(row: int) -> Callable[[Any], None]:
    def change(index: Any) -> None:
        lists = faiss.downcast_InvertedLists(core_of(index).invlists)
        number = next(one for one in range(lists.nlist) if lists.list_size(one))
        faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))[0] = row

    return change


def set_storage(name: str, value: int) -> Callable[[Any], None]:
    """Of the vectors below a graph."""
    return lambda index: setattr(faiss.downcast_index(index.storage), name, value)


def set_rows(rows: int) -> Callable[[Any], None]:
    """Of a graph and of its vectors, but not of its links."""

    def change(index: Any) -> None:
        index.ntotal = rows
        faiss.downcast_index(index.storage).ntotal = rows

    return change


def shorten(path: str) -> Callable[[Any], None]:
    """Leave one number of an array."""

    def change(index: Any) -> None:
        owner: Any = core_of(index)
        for name in path.split("."):
            owner = getattr(owner, name)
            owner = faiss.downcast_index(owner) if name == "quantizer" else owner
        owner.resize(1)

    return change


def shorten_bias(index: Any) -> None:
    faiss.downcast_VectorTransform(index.chain.at(0)).b.resize(1)


def set_list(name: str, value: int) -> Callable[[Any], None]:
    return lambda index: setattr(faiss.downcast_InvertedLists(core_of(index).invlists), name, value)


def take_centre(index: Any) -> None:
    core_of(index).quantizer.reset()


def set_direct_map(index: Any) -> None:
    core_of(index).set_direct_map_type(faiss.DirectMap.Array)


def set_field(path: str, value: int) -> Callable[[Any], None]:
    def change(index: Any) -> None:
        owner = core_of(index)
        *parents, name = path.split(".")
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, value)

    return change


def set_code_sizes(index: Any) -> None:
    """Of the index and of its codewords alike."""
    index.code_size = index.pq.code_size = 3


@pytest.mark.parametrize(
    ("factory", "change", "said"),
    [
        ("RR8,IVF8,PQ4x4", set_transform, "a transform of its vectors does not fit them"),
        ("RR8,IVF8,PQ4x4", set_field("ntotal", N - 1), "what it searches is not"),
        ("PCA4,SQfp16", shorten_bias, "a transform of its vectors does not fit them"),
        ("PCA4,SQfp16", lambda index: setattr(index, "d", 9), "a transform of its vectors does not fit them"),
        ("PCA4,SQfp16", set_field("d", 5), "what it searches is not"),
        ("PQ4x4", shorten("pq.centroids"), "its codewords are not those of its codes"),
        ("PQ4x4", set_field("pq.ksub", 8), "its codewords are not those of its codes"),
        ("PQ4x4", set_field("pq.d", 4), "its codewords are not those of its codes"),
        ("PQ4x4", set_field("pq.dsub", 3), "its codewords are not those of its codes"),
        ("PQ2x4", set_field("pq.nbits", 3), "its codewords are not those of its codes"),
        ("PQ4x4", set_code_sizes, "its codewords are not those of its codes"),
        ("SQ8", set_field("sq.d", 4), "its codes are of a kind that is not known"),
        ("SQ8", set_field("sq.code_size", 16), "its codes are not of their length"),
        ("Flat", set_field("code_size", 16), "its vectors are not of its dimension"),
        ("Flat", shorten("codes"), f"it has not as many vectors as its {N} rows"),
        ("SQ8", shorten("sq.trained"), "its codes are not of their length"),
        ("HNSW8", set_storage("ntotal", N - 1), "its vectors are not those of its graph"),
        ("HNSW8", set_storage("metric_type", faiss.METRIC_L2), "its vectors are not those of its graph"),
        ("HNSW8", set_rows(N + 1), f"its graph is of {N} rows where it holds {N + 1}"),
        ("HNSW8,SQ8", set_storage("code_size", 16), "its codes are not of their length"),
        ("IVF8,SQ8", set_list("nlist", 7), "it has 8 centres for 8 lists"),
        ("IVF8,SQ8", set_list("code_size", 16), "its lists hold codes of another length"),
        ("IVF8,SQ8", shorten("quantizer.codes"), "the centres of its lists: it has not as many vectors as its 8 rows"),
        ("RR8,IVF8,PQ4x4", set_field("pq.M", 8), "its codewords are not those of its codes"),
        ("RR8,IVF8,PQ4x4", set_field("pq.nbits", 8), "its codewords are not those of its codes"),
        ("RR8,IVF8,PQ4x4", set_field("code_size", 3), "its codewords are not those of its codes"),
        ("PQ4x4", set_field("search_type", 4), "it is searched in another way"),
        ("PQ4x4", set_field("ntotal", N + 1), f"it has not as many vectors as its {N + 1} rows"),
        ("SQ8", set_field("sq.qtype", faiss.ScalarQuantizer.QT_fp16), "its codes are not of their length"),
        ("SQ8", set_field("sq.qtype", 77), "its codes are of a kind that is not known"),
        ("SQ8", set_field("code_size", 16), "its codes are not of their length"),
        ("IVF8,SQ8", set_field("nlist", 9), "it has 8 centres for 9 lists"),
        ("IVF8,SQ8", take_centre, "it has 0 centres for 8 lists"),
        ("IVF8,SQ8", set_field("quantizer.d", 4), "it has 8 centres for 8 lists"),
        ("IVF8,SQ8", set_direct_map, "it has a map of its rows"),
        ("IVF8,SQ8", set_field("ntotal", N + 5), f"its lists hold {N} rows where it has {N + 5}"),
        ("IVF8,SQ8", set_id(N), f"leads to none of its {N} rows"),
        ("IVF8,SQ8", set_id(-1), f"leads to none of its {N} rows"),
        ("IVF8,Flat", set_field("code_size", 16), "its vectors are not of its dimension"),
    ],
)
def test_each_number_that_does_not_fit_is_a_defect(factory: str, change: Callable[[Any], None], said: str) -> None:
    index = built(factory)
    change(index)
    assert said in str(defect_of(index))


def test_a_row_that_is_in_two_lists_leaves_another_in_none() -> None:
    index = built("IVF8,SQ8")
    lists = faiss.downcast_InvertedLists(index.invlists)
    last = next(one for one in reversed(range(8)) if lists.list_size(one))
    other = int(faiss.rev_swig_ptr(lists.get_ids(last), lists.list_size(last))[0])
    set_id(other)(index)
    assert "is in none of its lists" in str(defect_of(index))


def test_centres_whose_graph_leads_astray_are_a_defect() -> None:
    index = built("IVF8_HNSW4,SQ8")
    graph = faiss.downcast_index(index.quantizer)
    links = faiss.vector_to_array(graph.hnsw.neighbors).copy()
    links[0] = 99
    faiss.copy_array_to_vector(links, graph.hnsw.neighbors)
    assert defect_of(index) == "the centres of its lists: a link of its graph leads to none of its 8 rows"


@pytest.mark.parametrize("factory", ["IVF16,SQ8", "IVF8,SQ4", "IVF8_HNSW4,SQ8", "SQ8", "RR8,IVF8,SQ8"])
def test_a_sound_index_of_another_factory_string_is_a_defect(factory: str) -> None:
    assert defect_of(built("IVF8,SQ8"), factory) == f"it is not what {factory!r} makes"


@pytest.mark.parametrize("factory", ["PQ2x4", "PQ4x5", "PCA4,PQ4x4"])
def test_codes_of_another_factory_string_are_a_defect(factory: str) -> None:
    assert defect_of(built("PQ4x4"), factory) == f"it is not what {factory!r} makes"
