import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import IndexCorrupt, IndexIncompatible, IndexNotResident, InvalidRequest
from openbook.indexing.bm25_publish import add_bm25
from openbook.storage.bm25_index import BM25_ROWS
from openbook.storage.faiss_index import IndexType
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import sealed
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.indexes import DIMENSION, publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.storage.mappings import opened, until_unmapped


def query(seed: int = 0, n: int = 3) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((n, DIMENSION)).astype(np.float32)


@pytest.fixture
def snapshot(tiny_indexes: Path) -> IndexSnapshot:
    return IndexStore(tiny_indexes).open("tiny-2016")


def test_more_passages_than_there_are_cannot_be_asked_for(snapshot: IndexSnapshot) -> None:
    with pytest.raises(InvalidRequest, match=r"13 passages were asked for, the index 'tiny-2016' holds 12"):
        snapshot.search(query(), 13)


@pytest.mark.parametrize("k", [0, -1])
def test_no_passage_cannot_be_asked_for(snapshot: IndexSnapshot, k: int) -> None:
    with pytest.raises(InvalidRequest):
        snapshot.search(query(), k)


@pytest.mark.parametrize("shape", [(1, DIMENSION - 1), (1, DIMENSION + 1), (DIMENSION,)])
def test_vectors_of_another_encoder_are_refused(snapshot: IndexSnapshot, shape: tuple[int, ...]) -> None:
    with pytest.raises(IndexIncompatible, match="dimensions, the checkpoint"):
        snapshot.search(np.zeros(shape, dtype=np.float32), 1)


def test_a_closed_snapshot_says_so_and_may_be_closed_again(snapshot: IndexSnapshot) -> None:
    snapshot.close()
    snapshot.close()
    for read in (
        lambda: snapshot.search(query(), 1),
        lambda: snapshot.vectors([0]),
        lambda: snapshot.passages([0]),
        snapshot.warm,
    ):
        with pytest.raises(IndexNotResident):
            read()


@pytest.mark.parametrize("index_type", ["flat", "hnsw"])
@pytest.mark.parametrize("scale", ["normalised", "of all lengths", "zero", "equal"])
def test_a_sound_index_passes_the_canary(tmp_path: Path, index_type: IndexType, scale: str) -> None:
    """Where lengths differ, a passage need not be the nearest to its own vector."""
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((400, DIMENSION))
    if scale == "normalised":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    elif scale == "of all lengths":
        vectors *= generator.lognormal(0.0, 2.0, (400, 1))
    else:
        vectors[:] = 0.0 if scale == "zero" else vectors[0]
    store = IndexStore(tmp_path)
    passages = [Passage(str(row), "", "") for row in range(400)]
    publish_tiny(store, "tiny-2016", vectors=vectors.astype(np.float32), passages=passages, index_type=index_type)
    store.open("tiny-2016").warm()


def test_a_damaged_number_of_bm25_is_found_before_a_version_is_served(tmp_path: Path) -> None:
    """No question looks for it again."""
    store = IndexStore(tmp_path)
    publish_tiny(store, "tiny-2016")
    add_bm25(store, "tiny-2016")
    path = store.file("tiny-2016", BM25_ROWS)
    np.save(path, np.load(path) + 12)
    with pytest.raises(IndexCorrupt, match="beyond the end"):
        store.open("tiny-2016").warm()


@pytest.mark.parametrize("index_type", ["flat", "hnsw", "IVF2,Flat"])
def test_opening_and_closing_leaks_no_descriptor_and_no_mapping(tmp_path: Path, index_type: str) -> None:
    store = IndexStore(tmp_path)
    publish_tiny(store, "tiny-2016", index_type=index_type)

    def use() -> None:
        snapshot = store.open("tiny-2016")
        snapshot.warm()
        snapshot.search(query(), 5)
        snapshot.passages([1, 2])
        snapshot.close()

    for _ in range(20):
        use()
    until_unmapped(tmp_path)
    assert opened(tmp_path) == 0


def test_what_was_read_stays_good_after_close(snapshot: IndexSnapshot) -> None:
    vectors, passages = snapshot.vectors([3]), snapshot.passages([3])
    snapshot.close()
    assert list(passages) == tiny_passages("tiny-2016")[3:4]
    np.testing.assert_array_equal(vectors, tiny_vectors(list(passages)))


def test_a_search_asks_hnsw_for_as_many_candidates_as_the_manifest_says(tmp_path: Path) -> None:
    store = IndexStore(tmp_path)
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((3000, DIMENSION)).astype(np.float32)
    passages = [Passage(str(row), "", "") for row in range(3000)]
    publish_tiny(store, "tiny-2016", vectors=vectors, passages=passages, index_type="hnsw")
    assert dict(store.info("tiny-2016").search) == {"efSearch": 128}
    manifest = tmp_path / "tiny-2016" / "manifest.json"
    queries = query(1, 60)
    expected = np.argmax(queries @ vectors.T, axis=1)

    def right() -> float:
        return float((store.open("tiny-2016").search(queries, 1)[:, 0] == expected).mean())

    with_many = right()
    manifest.write_bytes(sealed(json.loads(manifest.read_text()) | {"search": {"efSearch": 1}}))
    assert right() < with_many


def test_a_file_that_shrinks_is_an_error_before_it_is_read(indexes_folder: Path) -> None:
    """To read behind the end of a mapped file would end this process."""
    store = IndexStore(indexes_folder)
    for file in ("index.faiss", "passages.arrow"):
        snapshot = store.open("tiny-2016")
        path = store.file("tiny-2016", file)
        sound = path.read_bytes()
        os.truncate(path, 16)
        reads = (lambda one: one.search(query(), 1), lambda one: one.passages([0]), IndexSnapshot.warm)
        for read in reads:
            with pytest.raises(IndexCorrupt, match=f"'{file}' of index 'tiny-2016' has 16 bytes"):
                read(snapshot)
        with pytest.raises(IndexCorrupt, match="bytes where its manifest says"):
            store.open("tiny-2016")
        path.unlink()
        path.write_bytes(sound)
        snapshot.close()
        assert store.open("tiny-2016").passages([0]) == tuple(tiny_passages("tiny-2016")[:1])


def replaced(path: Path) -> None:
    Path(shutil.copy(path, f"{path}-new")).replace(path)


@pytest.mark.parametrize("change", [Path.unlink, replaced])
def test_a_file_that_is_removed_or_replaced_is_read_on(indexes_folder: Path, change: Callable[[Path], None]) -> None:
    store = IndexStore(indexes_folder)
    snapshot = store.open("tiny-2016")
    for file in snapshot.info.files:
        change(store.file("tiny-2016", file))
    assert snapshot.passages([0, 3]) == tuple(tiny_passages("tiny-2016")[row] for row in (0, 3))
    assert snapshot.search(query(), 12).shape == (3, 12)
