"""Every way in which a walk through an HNSW graph could leave it, and that a sound graph has none of them."""

from pathlib import Path

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from openbook.errors import IndexCorrupt
from openbook.storage.faiss_index import FaissIndex
from tests.fixtures.indexes import write_faiss

N = 2000
DIMENSION = 8


@pytest.fixture(scope="module")
def vectors() -> NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal((N, DIMENSION)).astype(np.float32)


@pytest.fixture
def path(vectors: NDArray[np.float32], tmp_path: Path) -> Path:
    return write_faiss(tmp_path / "index.faiss", vectors, "hnsw")


def copied(vector: object) -> NDArray[np.int64]:
    return np.array(faiss.vector_to_array(vector))


def defect_of(index: object) -> str:
    with pytest.raises(IndexCorrupt, match="cannot be read") as raised:
        FaissIndex(index, version="v").check_links()
    return str(raised.value.data["reason"])


@pytest.mark.parametrize("n", [1, 2, 33, N])
def test_a_sound_graph_has_no_defect(vectors: NDArray[np.float32], tmp_path: Path, n: int) -> None:
    FaissIndex.open(write_faiss(tmp_path / "index.faiss", vectors[:n], "hnsw"), version="v").check_links()


@pytest.mark.parametrize("row", [-2, N, 2**31 - 1])
def test_a_link_to_no_row_is_a_defect(path: Path, row: int) -> None:
    index = faiss.read_index(str(path))
    links = copied(index.hnsw.neighbors)
    links[-1] = row
    faiss.copy_array_to_vector(links.astype(np.int32), index.hnsw.neighbors)
    assert defect_of(index) == f"a link of its graph leads to none of its {N} rows"


def led_to_a_lower_layer(path: Path) -> object:
    """The entry's links on the uppermost layer, all to the last row, which is not on that layer."""
    index = faiss.read_index(str(path))
    hnsw = index.hnsw
    levels = copied(hnsw.levels)
    assert hnsw.max_level >= 1
    assert levels[-1] == 1
    begin = int(copied(hnsw.offsets)[hnsw.entry_point]) + int(copied(hnsw.cum_nneighbor_per_level)[hnsw.max_level])
    links = copied(hnsw.neighbors)
    links[begin : begin + 32] = N - 1
    faiss.copy_array_to_vector(links.astype(np.int32), hnsw.neighbors)
    return index


def test_a_link_to_a_row_that_is_not_on_its_layer_is_a_defect(path: Path) -> None:
    assert "leads to a row that is not there" in defect_of(led_to_a_lower_layer(path))


@pytest.mark.parametrize(
    ("array", "place", "value", "defect"),
    [
        ("levels", 0, 0, "a row is on a layer that its graph does not have"),
        ("levels", 0, 100, "a row is on a layer that its graph does not have"),
        ("offsets", 1, 1, "a row does not have the links of its layers"),
        ("offsets", 0, 64, "its rows and its links do not add up"),
        ("offsets", N, 1 << 40, "its rows and its links do not add up"),
        ("cum_nneighbor_per_level", 0, 1, "the layers of its graph are out of order"),
        ("cum_nneighbor_per_level", 2, 3, "the layers of its graph are out of order"),
        ("cum_nneighbor_per_level", 1, 65, "a row does not have the links of its layers"),
    ],
)
def test_a_layout_that_does_not_add_up_is_a_defect(path: Path, array: str, place: int, value: int, defect: str) -> None:
    index = faiss.read_index(str(path))
    vector = getattr(index.hnsw, array)
    content = faiss.vector_to_array(vector).copy()
    content[place] = value
    faiss.copy_array_to_vector(content, vector)
    assert defect_of(index) == defect


@pytest.mark.parametrize(
    ("field", "value", "defect"),
    [
        ("entry_point", N, f"its graph is entered at row {N} of {N}, on layer"),
        ("entry_point", -1, f"its graph is entered at row -1 of {N}, on layer"),
        ("max_level", 30, f" of {N}, on layer 30"),
        ("max_level", -1, f" of {N}, on layer -1"),
    ],
)
def test_an_entry_that_is_not_there_is_a_defect(path: Path, field: str, value: int, defect: str) -> None:
    index = faiss.read_index(str(path))
    setattr(index.hnsw, field, value)
    assert defect in defect_of(index)


def test_a_graph_over_other_vectors_is_a_defect(path: Path) -> None:
    index = faiss.read_index(str(path))
    index.storage.metric_type = faiss.METRIC_L2
    assert defect_of(index) == "its vectors are not those of its graph"


def test_a_damaged_length_is_refused_before_as_much_memory_is_asked_for(path: Path) -> None:
    if not hasattr(faiss, "set_deserialization_vector_byte_limit"):
        pytest.skip("this FAISS has no limit on what it reads")
    limit = faiss.get_deserialization_vector_byte_limit()
    content = bytearray(path.read_bytes())
    place = content.index(N.to_bytes(8, "little"), 64)
    content[place + 3] ^= 0x0F
    path.write_bytes(content)
    with pytest.raises(IndexCorrupt, match="byte_limit"):
        FaissIndex.open(path, version="v")
    assert faiss.get_deserialization_vector_byte_limit() == limit
