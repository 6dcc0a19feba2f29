"""What would lead a search of codes or lists out of them, one at a time."""

from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
import pytest

from openbook.indexing.faiss_building import build_index
from openbook.indexing.faiss_layout import layout_of
from openbook.indexing.index_spec import choose_index
from openbook.storage.faiss_factory import core_of, not_served
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
    assert defect_of(index) is None
    large = layout_of(factory, DIMENSION).bytes_a_vector * N
    assert sum(part.size for part in mapped_parts(index)) == pytest.approx(large, rel=0.1)


def lists_of(index: Any) -> Any:
    return faiss.downcast_InvertedLists(core_of(index).invlists)


def set_id(row: int) -> Callable[[Any], None]:
    def change(index: Any) -> None:
        lists = lists_of(index)
        number = next(one for one in range(lists.nlist) if lists.list_size(one))
        faiss.rev_swig_ptr(lists.get_ids(number), lists.list_size(number))[0] = row

    return change


def set_field(name: str, value: int) -> Callable[[Any], None]:
    return lambda index: setattr(core_of(index), name, value)


def lead_centres_astray(index: Any) -> None:
    graph = faiss.downcast_index(index.quantizer).hnsw
    links = faiss.vector_to_array(graph.neighbors).copy()
    links[0] = 99
    faiss.copy_array_to_vector(links, graph.neighbors)


@pytest.mark.parametrize(
    ("factory", "change", "said"),
    [
        ("SQ8", lambda index: setattr(index, "is_trained", False), "it has not been trained"),
        ("RR8,IVF8,PQ4x4", set_field("ntotal", N - 1), "or not filled"),
        ("Flat", lambda index: index.codes.resize(1), f"it has not as many vectors as its {N} rows"),
        ("PQ4x4", set_field("ntotal", N + 1), f"it has not as many vectors as its {N + 1} rows"),
        ("SQ8", set_field("code_size", 16), f"it has not as many vectors as its {N} rows"),
        ("IVF8,SQ8", set_field("nlist", 9), "it has 8 centres for 9 lists"),
        ("IVF8,SQ8", lambda index: index.quantizer.reset(), "it has 0 centres for 8 lists"),
        ("IVF8,SQ8", lambda index: setattr(lists_of(index), "nlist", 7), "it has 8 centres for 8 lists"),
        ("IVF8,SQ8", set_field("ntotal", N + 5), f"its lists hold {N} rows where it has {N + 5}"),
        ("IVF8,SQ8", set_id(N), f"leads to none of its {N} rows"),
        ("IVF8,SQ8", set_id(-1), f"leads to none of its {N} rows"),
        ("IVF8_HNSW4,SQ8", lead_centres_astray, "the centres of its lists: a link of its graph leads to none of its 8"),
    ],
)
def test_what_would_lead_a_search_astray_is_a_defect(factory: str, change: Callable[[Any], None], said: str) -> None:
    index = built(factory)
    change(index)
    assert said in str(defect_of(index))
