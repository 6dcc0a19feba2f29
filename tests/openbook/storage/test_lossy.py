"""An index that cannot give its vectors back: what it proposes is scored exactly with the vectors beside it."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import IndexCorrupt, InvalidRequest, SourceInvalid
from openbook.indexing.index_spec import choose_index
from openbook.rag.retriever import DenseRetriever, Search
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import resident_bytes, sealed
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.publishing import publish

N, DIMENSION = 1200, 16
FACTORIES = ["RR16,IVF16,PQ8x4", "IVF16_HNSW4,SQ8", "SQ8", "HNSW8,SQ8", "IVF16,Flat", "PCA8,IVF16,PQ4x4"]


def drawn(n: int = N, *, seed: int = 0) -> NDArray[np.float32]:
    generator = np.random.default_rng(seed)
    directions = generator.standard_normal((n, DIMENSION))
    return (directions * generator.lognormal(0.0, 0.5, (n, 1))).astype(np.float32)


def publish_drawn(
    store: IndexStore, factory: str, vectors: NDArray[np.float32], version: str = "v", **changed: int
) -> None:
    spec = choose_index(factory, n_passages=len(vectors), dimension=DIMENSION, memory_bytes=None, **changed)
    publish(
        store,
        version,
        vectors=vectors,
        passages=(Passage(str(row), f"title {row}", f"text {row}") for row in range(len(vectors))),
        spec=spec,
        encoder_name="e",
        encoder_fingerprint="f",
        attribution="by its authors",
        n_threads=1,
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> IndexStore:
    store = IndexStore(tmp_path_factory.mktemp("indexes"))
    for number, factory in enumerate(FACTORIES):
        publish_drawn(store, factory, drawn(), f"v{number}")
    return store


@pytest.fixture(scope="module", params=range(len(FACTORIES)), ids=FACTORIES)
def snapshot(request: pytest.FixtureRequest, store: IndexStore) -> IndexSnapshot:
    opened = store.open(f"v{request.param}")
    opened.warm()
    return opened


def exact(queries: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    stored = drawn().astype(np.float16).astype(np.float64)
    return np.argsort(-(queries.astype(np.float64) @ stored.T), axis=1, kind="stable")[:, :k]


def test_it_comes_back_as_it_was_published(snapshot: IndexSnapshot) -> None:
    assert set(snapshot.info.files) == {"index.faiss", "passages.arrow", "vectors.npy"}
    assert snapshot.info.attribution == "by its authors"
    assert snapshot.info.factory in FACTORIES
    stored = drawn().astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(snapshot.vectors([5, 0, N - 1]), stored[[5, 0, N - 1]])
    np.testing.assert_array_equal(np.concatenate(list(snapshot.vector_slices(500))), stored)
    assert [one.passage_id for one in snapshot.passages([7, 3])] == ["7", "3"]


@settings(max_examples=25)
@given(seed=st.integers(0, 2**31), k=st.integers(1, 20), length=st.sampled_from([1e-3, 1.0, 50.0]))
def test_doc_scores_are_the_exact_inner_products_with_the_stored_vectors(
    snapshot: IndexSnapshot, seed: int, k: int, length: float
) -> None:
    questions = (np.random.default_rng(seed).standard_normal((2, DIMENSION)) * length).astype(np.float32)
    stored = drawn().astype(np.float16).astype(np.float64)
    retriever = DenseRetriever()
    for question, found in zip(
        questions, retriever.search(Search([""] * len(questions), questions, snapshot, k)), strict=True
    ):
        scores = stored[list(found.rows)] @ question.astype(np.float64)
        np.testing.assert_allclose(found.doc_scores, scores, rtol=1e-12)
        assert list(found.doc_scores) == sorted(found.doc_scores, reverse=True)
        assert len(set(found.rows)) == k
        assert [int(one.passage_id) for one in found.passages] == list(found.rows)


def test_more_candidates_find_more(store: IndexStore) -> None:
    snapshot, queries = store.open("v5"), drawn(100, seed=2)
    expected = exact(queries, 5)

    def recall(candidates: int) -> float:
        found = snapshot.search(queries, 5, parameters={"candidates": candidates, "nprobe": 16})
        return float((found[:, :, None] == expected[:, None, :]).any(axis=1).mean())

    assert recall(5) < recall(50) <= recall(N) == 1.0


def test_there_are_always_k_rows_even_where_the_lists_hold_fewer(store: IndexStore) -> None:
    snapshot, queries = store.open("v0"), drawn(20, seed=3)
    found = snapshot.search(queries, 1000, parameters={"nprobe": 1})
    assert found.shape == (20, 1000)
    assert all(len(set(rows)) == 1000 and min(rows) >= 0 for rows in found.tolist())


@pytest.mark.parametrize(
    ("version", "parameters", "said"),
    [
        ("v0", {"efSearch": 5}, "the index 'v0' of type ivfpq has no such parameter. It has: nprobe, candidates"),
        ("v3", {"nprobe": 5}, "the index 'v3' of type factory has no such parameter. It has: efSearch, candidates"),
        ("v0", {"nprobe": 17}, "must be from 1 to 16 for 'v0', not 17"),
        ("v2", {"candidates": 10**6}, "from 1 to 16,384"),
    ],
)
def test_a_parameter_out_of_bounds_is_refused(
    store: IndexStore, version: str, parameters: dict[str, int], said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        store.open(version).search(drawn(1), 5, parameters=parameters)


def test_vectors_and_text_stay_on_the_disk(store: IndexStore) -> None:
    info = store.info("v0")
    assert resident_bytes(info) == info.files["index.faiss"].bytes
    told: list[float] = []
    snapshot = store.open("v0")
    snapshot.warm(told.append)
    assert told == sorted(told)
    assert 0.5 < told[-1] <= 1


def test_a_vector_that_float16_does_not_reach_is_refused(tmp_path: Path) -> None:
    vectors = drawn()
    vectors[7, 3] = 70_000
    with pytest.raises(SourceInvalid, match="row 7 is too long for float16"):
        publish_drawn(IndexStore(tmp_path), "IVF16,SQ8", vectors)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["gone", "head", "of others"])
def test_vectors_that_are_not_those_of_the_manifest_are_refused(tmp_path: Path, damage: str) -> None:
    store = IndexStore(tmp_path)
    publish_drawn(store, "IVF16,SQ8", drawn())
    path = tmp_path / "v" / "vectors.npy"
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "head":
        path.write_bytes(content[:10] + b"X" + content[11:])
    else:
        path.write_bytes(content.replace(b"(1200, 16)", b"(600, 32) "))
    with pytest.raises(IndexCorrupt, match=r"vectors\.npy"):
        store.open("v")


def test_a_lossy_version_without_its_vectors_in_the_manifest_is_refused(tmp_path: Path) -> None:
    store = IndexStore(tmp_path)
    publish_drawn(store, "IVF16,SQ8", drawn())
    manifest = tmp_path / "v" / "manifest.json"
    fields = json.loads(manifest.read_text())
    del fields["files"]["vectors.npy"]
    manifest.write_bytes(sealed(fields))
    with pytest.raises(IndexCorrupt, match=r"files\.vectors\.npy: Field required"):
        store.open("v")
