"""A search among some of the rows finds what comparing with each of them finds, whatever the index."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.indexing.index_spec import choose_index
from openbook.storage import faiss_selection
from openbook.storage.bm25_index import best_rows
from openbook.storage.faiss_index import FaissIndex
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.indexes import write_faiss
from tests.fixtures.publishing import publish

N, DIMENSION = 400, 16
LOSSLESS = ("flat", "hnsw")
LOSSY = (
    *("IVF16,PQ8x4", "OPQ8_16,IVF16_HNSW4,PQ8x4", "IVF16,Flat", "SQ8"),
    *("RR16,SQ8", "PQ8x4", "RR16,PQ8x4", "HNSW8,SQ8"),
)


def drawn(n: int = N, *, seed: int = 0) -> NDArray[np.float32]:
    """Vectors in clusters, so that rows that are allowed may all be far from a question: (n, d)."""
    generator = np.random.default_rng(seed)
    centres = np.random.default_rng(7).standard_normal((12, DIMENSION))
    found = 2 * centres[generator.integers(12, size=n)] + generator.standard_normal((n, DIMENSION))
    return found.astype(np.float32)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> IndexStore:
    store = IndexStore(tmp_path_factory.mktemp("indexes"))
    for number, factory in enumerate((*LOSSLESS, *LOSSY)):
        publish(
            store,
            f"v{number}",
            vectors=drawn(),
            passages=(Passage(str(row), "", "") for row in range(N)),
            spec=choose_index(factory, n_passages=N, dimension=DIMENSION, memory_bytes=None),
            encoder_name="e",
            encoder_fingerprint="f",
            n_threads=1,
        )
    return store


@pytest.fixture(scope="module", params=range(len(LOSSLESS + LOSSY)), ids=LOSSLESS + LOSSY)
def snapshot(request: pytest.FixtureRequest, store: IndexStore) -> IndexSnapshot:
    return store.open(f"v{request.param}")


def best(snapshot: IndexSnapshot, queries: NDArray[np.float32], k: int, allowed: NDArray[np.bool_]) -> list[list[int]]:
    rows = np.flatnonzero(allowed)
    scores = queries.astype(np.float64) @ snapshot.vectors(rows.tolist()).astype(np.float64).T  # (Q, n)
    return [rows[order].tolist() for order in np.argsort(-scores, axis=1, kind="stable")[:, :k]]


def masks(seed: int, share: float, kind: str) -> NDArray[np.bool_]:
    generator = np.random.default_rng(seed)
    if kind == "at random":
        return np.asarray(generator.random(N) < share)
    # those that lie in one direction, which a graph's walk towards another one does not meet
    along = drawn() @ generator.standard_normal(DIMENSION).astype(np.float32)
    return np.asarray(along >= np.quantile(along, 1 - share))


@settings(max_examples=8)
@given(
    seed=st.integers(0, 2**31),
    share=st.sampled_from([0.0, 0.005, 0.05, 0.3, 0.7, 1.0]),
    kind=st.sampled_from(["at random", "one direction"]),
    k=st.integers(1, 30),
)
def test_what_is_found_are_the_best_of_the_allowed_rows(
    snapshot: IndexSnapshot, seed: int, share: float, kind: str, k: int
) -> None:
    allowed, queries = masks(seed, share, kind), drawn(3, seed=seed)
    widest = {"efSearch": N, "nprobe": 16, "candidates": N}
    names = set(snapshot.info.search) | ({"candidates"} if snapshot.info.factory in LOSSY else set())
    parameters = {name: widest[name] for name in names}
    found = snapshot.search(queries, k, parameters=parameters, allowed=allowed)
    assert found.shape == (3, min(k, allowed.sum()))
    assert found.tolist() == best(snapshot, queries, k, allowed)


@settings(max_examples=4)
@given(seed=st.integers(0, 2**31), share=st.sampled_from([0.01, 0.2, 0.8]), k=st.integers(1, 20))
def test_the_numbers_of_the_manifest_find_as_many_rows_as_there_are(
    snapshot: IndexSnapshot, seed: int, share: float, k: int
) -> None:
    allowed, queries = masks(seed, share, "one direction"), drawn(3, seed=seed)
    found = snapshot.search(queries, k, allowed=allowed)
    assert found.shape == (3, min(k, allowed.sum()))
    assert allowed[found].all()
    assert all(len(set(rows)) == len(rows) for rows in found.tolist())


def test_a_walk_that_meets_few_of_the_allowed_rows_gives_way_to_comparing_with_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the rows of one direction, a walk towards another one finds some and not the best."""
    vectors = drawn(2000)
    index = FaissIndex.open(write_faiss(tmp_path / "index.faiss", vectors, "hnsw"), version="v")
    queries = drawn(40, seed=1)
    along = vectors @ queries.mean(axis=0)
    allowed = along <= np.quantile(along, 0.2)
    rows = np.flatnonzero(allowed)
    expected = rows[np.argsort(-(queries @ vectors[rows].T), axis=1)[:, :5]]
    # no row is few enough for a scan
    monkeypatch.setattr(faiss_selection, "ROWS_A_CANDIDATE", 0)
    found = index.search(queries, 5, parameters={"efSearch": 32}, allowed=allowed)
    assert (found[:, :, None] == expected[:, None, :]).any(axis=1).mean() > 0.95


@pytest.mark.parametrize("number", range(len(LOSSLESS + LOSSY)), ids=LOSSLESS + LOSSY)
def test_codes_propose_rows_that_are_near(store: IndexStore, number: int) -> None:
    """Fewer candidates than rows are allowed, so that the codes decide which are scored."""
    snapshot, allowed, queries = store.open(f"v{number}"), masks(1, 0.6, "at random"), drawn(30, seed=3)
    parameters = {"candidates": 40} if number >= len(LOSSLESS) else None
    found = snapshot.search(queries, 5, parameters=parameters, allowed=allowed)
    hits = [
        len(set(rows) & set(nearest))
        for rows, nearest in zip(found.tolist(), best(snapshot, queries, 5, allowed), strict=True)
    ]
    assert allowed[found].all()
    assert sum(hits) > 0.8 * found.size


def test_where_an_index_proposes_too_few_all_allowed_rows_are_scored(
    store: IndexStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, allowed, queries = store.open("v2"), masks(1, 0.6, "at random"), drawn(2, seed=3)
    monkeypatch.setattr(FaissIndex, "search", lambda *_, **__: np.full((2, 40), -1))
    found = snapshot.search(queries, 9, parameters={"candidates": 40}, allowed=allowed)
    assert found.tolist() == best(snapshot, queries, 9, allowed)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30), st.integers(1, 40))
def test_the_best_of_bm25_are_those_of_the_allowed_rows(drawn_rows: list[tuple[int, bool]], k: int) -> None:
    scores = np.array([score for score, _ in drawn_rows], dtype=np.float32)
    allowed = np.array([passes for _, passes in drawn_rows])
    rows = sorted(np.flatnonzero(allowed).tolist(), key=lambda row: (-scores[row], row))
    assert best_rows(scores, k, allowed).tolist() == rows[:k]
