import threading
import time
from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from openbook.errors import IndexCorrupt, IndexNotResident
from openbook.storage.faiss_index import FaissIndex, IndexType
from tests.fixtures.indexes import cut_links, write_faiss

N, DIMENSION = 300, 16


def drawn(n: int = N, *, seed: int = 0) -> NDArray[np.float32]:
    """Vectors of very different lengths, so that inner product, cosine and distance rank differently: (n, 16)."""
    generator = np.random.default_rng(seed)
    directions = generator.standard_normal((n, DIMENSION))
    return (directions * generator.lognormal(0.0, 1.0, (n, 1))).astype(np.float32)


def exact(vectors: NDArray[np.float32], queries: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    scores = queries.astype(np.float64) @ vectors.astype(np.float64).T  # (Q, N)
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


def opened(folder: Path, index_type: IndexType, vectors: NDArray[np.float32]) -> FaissIndex:
    return FaissIndex.open(write_faiss(folder / "index.faiss", vectors, index_type), version="v")


def test_a_flat_index_finds_the_largest_inner_products(tmp_path: Path) -> None:
    vectors, queries = drawn(), drawn(40, seed=1)
    index = opened(tmp_path, "flat", vectors)
    assert (index.n_vectors, index.dimension, index.index_type) == (N, DIMENSION, "flat")
    np.testing.assert_array_equal(index.search(queries, 10), exact(vectors, queries, 10))


def test_an_hnsw_index_finds_nearly_all_of_them(tmp_path: Path) -> None:
    vectors, queries = drawn(), drawn(40, seed=1)
    index = opened(tmp_path, "hnsw", vectors)
    assert index.index_type == "hnsw"
    found, expected = index.search(queries, 10), exact(vectors, queries, 10)
    shared = [len(set(a) & set(b)) for a, b in zip(found.tolist(), expected.tolist(), strict=True)]
    assert sum(shared) >= 0.95 * expected.size


def test_every_entry_is_a_row_even_where_the_links_of_hnsw_reach_too_few(tmp_path: Path) -> None:
    vectors, queries = drawn(), drawn(5, seed=1)
    opened(tmp_path, "hnsw", vectors).close()
    cut_links(tmp_path / "index.faiss")
    bare = faiss.read_index(str(tmp_path / "index.faiss"))
    assert (bare.search(queries, 20)[1] < 0).any(), "this graph reaches enough: the test would show nothing"
    index = FaissIndex.open(tmp_path / "index.faiss", version="v")
    np.testing.assert_array_equal(index.search(queries, 20), exact(vectors, queries, 20))


@pytest.mark.parametrize("row", [-1, N, 10**12])
def test_a_row_that_is_not_there_is_refused(tmp_path: Path, row: int) -> None:
    with pytest.raises(IndexError, match=f"row {row} of 300"):
        opened(tmp_path, "flat", drawn()).vectors([0, row])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_query_that_is_not_finite_is_refused(tmp_path: Path, value: float) -> None:
    query = np.full((1, DIMENSION), value, dtype=np.float32)
    with pytest.raises(ValueError, match="not finite"):
        opened(tmp_path, "flat", drawn()).search(query, 1)


def test_closing_while_others_search_ends_their_searches_well(tmp_path: Path) -> None:
    """Unmapping below a search would end the process, not raise."""
    vectors = drawn(20_000)
    queries = drawn(15, seed=1)
    expected = exact(vectors, queries, 3).tolist()
    index = opened(tmp_path, "flat", vectors)
    found: list[object] = []
    started = threading.Barrier(5)

    def search() -> None:
        started.wait()
        try:
            while True:
                found.append(index.search(queries, 3).tolist() == expected)
        except IndexNotResident:
            found.append("closed")

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait()
    while len(found) < 8:
        time.sleep(0.001)
    index.close()
    for thread in threads:
        thread.join()
    assert found.count("closed") == 4
    assert set(found) == {True, "closed"}


def test_a_search_leaves_the_number_of_threads_as_it_was(tmp_path: Path) -> None:
    index = opened(tmp_path, "flat", drawn())
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(3)
    try:
        index.search(drawn(1), 1)
        assert faiss.omp_get_max_threads() == 3
    finally:
        faiss.omp_set_num_threads(before)


@pytest.mark.parametrize("index_type", ["flat", "hnsw"])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.999])
def test_a_cut_file_is_unreadable(tmp_path: Path, index_type: IndexType, share: float) -> None:
    opened(tmp_path, index_type, drawn()).close()
    path = tmp_path / "index.faiss"
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    with pytest.raises(IndexCorrupt, match="cannot be read"):
        FaissIndex.open(path, version="v")


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (faiss.IndexFlatL2(DIMENSION), "does not search inner products"),
        (faiss.IndexHNSWFlat(DIMENSION, 32), "does not search inner products"),
        (faiss.IndexLSH(DIMENSION, 8), "it is an IndexLSH"),
    ],
    ids=["flat distances", "hnsw distances", "another kind"],
)
def test_an_index_of_another_kind_is_refused(tmp_path: Path, index: faiss.Index, said: str) -> None:
    index.add(drawn())
    faiss.write_index(index, str(tmp_path / "index.faiss"))
    with pytest.raises(IndexCorrupt, match=said):
        FaissIndex.open(tmp_path / "index.faiss", version="v")
