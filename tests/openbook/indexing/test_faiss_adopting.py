"""A FAISS file made elsewhere becomes a version's index, or is refused with a reason and a way out."""

from functools import cache
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from openbook.entities import IndexInfo, Passage
from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.faiss_adopting import Adoptable, adoptable
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import cut_links
from tests.fixtures.publishing import publish

N, D = 600, 16
# as DPR's: not of one length, and about a mean
VECTORS = (np.random.default_rng(0).standard_normal((N, D)) + 0.5).astype(np.float32)
SQUARED = (VECTORS * VECTORS).sum(axis=1)
HIDDEN = np.concatenate([VECTORS, np.sqrt(SQUARED.max() - SQUARED)[:, None]], axis=1).astype(np.float32)
FILLED = {"vectors": VECTORS, "reversed": np.ascontiguousarray(VECTORS[::-1]), "hidden": HIDDEN}
IP = faiss.METRIC_INNER_PRODUCT
# that of wiki_dpr at this size, and one over vectors
FACTORIES = ("HNSW16", "HNSW16,SQ8")


@cache
def made(factory: str, filled: str = "vectors", metric: int = IP) -> bytes:
    """A file as FAISS alone makes it."""
    vectors = FILLED[filled]
    index: Any = faiss.index_factory(vectors.shape[1], factory, metric)
    index.train(vectors)
    index.add(vectors)
    return bytes(faiss.serialize_index(index))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ready.faiss"


@pytest.fixture
def indexes(tmp_path: Path) -> Path:
    return tmp_path / "indexes"


def write(file: Path, factory: str = "HNSW16,SQ8", filled: str = "vectors", metric: int = IP) -> Path:
    file.write_bytes(made(factory, filled, metric))
    return file


def publish_adopted(
    folder: Path, file: Path, vectors: NDArray[np.float32] = VECTORS, adopted: Adoptable | None = None, **numbers: int
) -> IndexInfo:
    adopted = adopted or adoptable(file, vectors.shape[1], numbers)
    adopted.check_rows(len(vectors))
    return publish(
        IndexStore(folder),
        "v",
        vectors=vectors,
        passages=(Passage(str(row), f"title {row}", f"text {row}") for row in range(len(vectors))),
        spec=adopted.spec,
        encoder_name="e",
        encoder_fingerprint="f",
        adopted=file,
    )


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_file_is_adopted_as_it_is_and_searched_as_any_index(indexes: Path, file: Path, factory: str) -> None:
    write(file, factory)
    info = publish_adopted(indexes, file)
    assert (indexes / "v" / "index.faiss").read_bytes() == file.read_bytes()
    assert info.factory == factory
    assert info.index_reason.startswith("taken as it was made, from ready.faiss; of the 10 best for each of 64 of its ")
    snapshot = IndexStore(indexes).open("v")
    snapshot.warm()
    queries = VECTORS[::37]
    lossy = "vectors.npy" in info.files
    stored = VECTORS.astype(np.float16).astype(np.float64) if lossy else VECTORS.astype(np.float64)
    assert lossy == (factory != "HNSW16")
    found = snapshot.search(queries, 5, parameters={"candidates": N} if lossy else None)
    exact = np.sort(queries.astype(np.float64) @ stored.T, axis=1)[:, :-6:-1]
    scores = np.take_along_axis(queries.astype(np.float64) @ stored.T, found, axis=1)
    assert (np.abs(scores - exact) < 1e-4).mean() > 0.7
    np.testing.assert_array_equal(snapshot.vectors([3, N - 1]), stored[[3, N - 1]].astype(np.float32))


def refused(indexes: Path, file: Path, said: str, vectors: NDArray[np.float32] = VECTORS) -> None:
    with pytest.raises(SourceInvalid, match=said) as refusal:
        publish_adopted(indexes, file, vectors)
    assert str(refusal.value).startswith(f"{file} cannot be adopted: ")
    assert str(refusal.value).endswith(". Import without --faiss (and with --restart): one is made then.")
    assert not indexes.exists() or list(indexes.iterdir()) == []


@pytest.mark.parametrize(
    ("factory", "filled", "metric", "said"),
    [
        # DPR's own graph
        ("HNSW16", "hidden", faiss.METRIC_L2, f"L2 distances over {D + 1} dimensions, one more than the vectors have"),
        ("Flat", "vectors", faiss.METRIC_L2, "it measures distances, and a passage's score is an inner product"),
        ("IVF8,SQ8", "vectors", IP, r"it is an IndexIVFScalarQuantizer, and only graphs .* are taken as they are"),
        ("Flat", "vectors", IP, "it is an IndexFlat.*only graphs"),
        ("HNSW16,SQ8_direct", "vectors", IP, "its codes are of a kind that is not known"),
        ("HNSW16", "reversed", IP, "its rows in another order"),
        ("HNSW16,SQ8", "reversed", IP, "its rows in another order"),
    ],
)
def test_an_index_that_could_not_be_served_or_is_of_other_vectors_is_refused(
    indexes: Path, file: Path, factory: str, filled: str, metric: int, said: str
) -> None:
    refused(indexes, write(file, factory, filled, metric), said)


def test_another_dimension_or_number_of_rows_is_refused(indexes: Path, file: Path) -> None:
    write(file)
    refused(indexes, file, "it has 600 rows where there are 599 passages", VECTORS[:-1])
    refused(indexes, file, "it is of 16 dimensions where the vectors have 8", np.ascontiguousarray(VECTORS[:, :8]))
    faiss.write_index(faiss.IndexHNSWFlat(D, 8, IP), str(file))
    refused(indexes, file, "it has no rows")


def test_vectors_that_were_rounded_to_half_precision_are_the_same_vectors(indexes: Path, file: Path) -> None:
    publish_adopted(indexes, write(file, "HNSW16"), VECTORS.astype(np.float16).astype(np.float32))


def test_a_graph_that_leads_nowhere_is_refused(indexes: Path, file: Path) -> None:
    cut_links(write(file, "HNSW16"))
    refused(indexes, file, "it finds [0-9]%")
    # out of the index: found before the first search
    index: Any = faiss.read_index(str(write(file, "HNSW16")))
    links = faiss.vector_to_array(index.hnsw.neighbors)
    links[7] = N + 5
    faiss.copy_array_to_vector(links, index.hnsw.neighbors)
    faiss.write_index(index, str(file))
    with pytest.raises(SourceInvalid, match=f"leads to none of its {N} rows|FAISS cannot read it"):
        adoptable(file, D)


def test_an_untrained_index_is_refused_before_it_is_searched(indexes: Path, file: Path) -> None:
    index: Any = faiss.read_index(str(write(file)))
    index.is_trained = False
    faiss.write_index(index, str(file))
    refused(indexes, file, "it has not been trained|FAISS cannot read it")


@pytest.mark.parametrize("content", [b"", b"IxFI", b"\x89PNG" + bytes(500), b"not FAISS's"])
def test_what_is_no_file_of_faiss_is_refused(indexes: Path, file: Path, content: bytes) -> None:
    file.write_bytes(content)
    refused(indexes, file, "FAISS cannot read it")
    refused(indexes, file.with_name("gone"), "FAISS cannot read it .*No such file")


@pytest.mark.parametrize("factory", ["HNSW8", "HNSW8,SQ8"])
def test_no_cut_or_flipped_file_ends_the_process(indexes: Path, file: Path, factory: str) -> None:
    whole = made(factory)
    generator = np.random.default_rng(0)
    taken = 0
    for turn in range(40):
        content = bytearray(whole)
        if turn % 2:
            del content[int(generator.integers(len(whole))) :]
        else:
            # lengths and counts stand at the beginning, where a flip does most
            content[int(generator.integers(min(300, len(whole))))] ^= 1 << int(generator.integers(8))
        file.write_bytes(content)
        try:
            publish_adopted(indexes / str(turn), file)
            taken += 1
        except SourceInvalid:
            pass
    assert taken < 20


def test_numbers_of_a_search_are_taken_and_others_refused(file: Path) -> None:
    write(file)
    assert adoptable(file, D, {"ef_search": 40, "candidates": 20}).spec.search == {"efSearch": 40, "candidates": 20}
    for number in ("m", "ef_construction", "nlist", "code_bytes", "nprobe"):
        with pytest.raises(SettingInvalid, match=number):
            adoptable(file, D, {number: 8})


def test_a_file_that_changes_after_it_was_looked_at_is_refused(indexes: Path, file: Path) -> None:
    adopted = adoptable(write(file), D)
    write(file, "HNSW8,SQ4")
    with pytest.raises(SourceInvalid, match="it has changed since it was looked at"):
        publish_adopted(indexes, file, adopted=adopted)
