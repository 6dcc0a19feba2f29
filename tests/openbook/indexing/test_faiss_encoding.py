"""Lists that Openbook fills hold what FAISS's own `add` puts into them."""

import faiss
import numpy as np
import pytest

from openbook.indexing.faiss_encoding import ListFilling
from openbook.storage.faiss_factory import core_of, new_index

N, DIMENSION = 700, 24


@pytest.mark.parametrize("factory", ["IVF8,PQ4", "RR24,IVF300,PQ4", "IVF16_HNSW4,PQ2"])
@pytest.mark.parametrize("threads", [1, 3])
def test_lists_are_filled_to_the_byte_as_faiss_fills_them(factory: str, threads: int) -> None:
    vectors = np.random.default_rng(0).standard_normal((N, DIMENSION), dtype=np.float32)
    index = new_index(factory, DIMENSION)
    core = core_of(index)
    core.do_polysemous_training = False
    core.cp.niter = core.pq.cp.niter = 2
    core.cp.min_points_per_centroid = core.pq.cp.min_points_per_centroid = 1
    index.train(vectors)
    expected = faiss.clone_index(index)
    assert ListFilling.suits(index)
    with ListFilling(index, threads) as filling:
        # more than one block, and a second slice after the first
        for part in (vectors[:600], vectors[600:]):
            filling.add(part)
            expected.add(part)
    np.testing.assert_array_equal(faiss.serialize_index(index), faiss.serialize_index(expected))


@pytest.mark.parametrize("factory", ["Flat", "HNSW8", "IVF8,SQ8", "IVF8,Flat", "PQ4", "IVF8,PQ3", "OPQ2_8,IVF8,PQ2x4"])
def test_other_indexes_are_left_to_faiss(factory: str) -> None:
    assert not ListFilling.suits(new_index(factory, DIMENSION))
