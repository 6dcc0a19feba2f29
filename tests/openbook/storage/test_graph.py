"""Every way in which a walk through an HNSW graph could leave it, and that a sound graph has none of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from openbook.errors import IndexCorrupt
from openbook.storage.faiss_index import FaissIndex
from tests.fixtures.indexes import write_faiss

N = 2000
VECTORS = np.random.default_rng(0).standard_normal((N, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Not to be changed."""
    return write_faiss(tmp_path_factory.mktemp("graph") / "index.faiss", VECTORS, "hnsw")


def copied(vector: object) -> NDArray[np.int64]:
    return np.array(faiss.vector_to_array(vector))


def number(array: str, place: int, value: int) -> Callable[[Any], None]:
    def change(index: Any) -> None:
        vector = getattr(index.hnsw, array)
        content = faiss.vector_to_array(vector).copy()
        content[place] = value
        faiss.copy_array_to_vector(content, vector)

    return change


def field(name: str, value: int) -> Callable[[Any], None]:
    return lambda index: setattr(index.hnsw, name, value)


def lead_to_a_lower_layer(index: Any) -> None:
    """The entry's links on the uppermost layer, all to the last row, which is not on that layer."""
    hnsw = index.hnsw
    assert hnsw.max_level >= 1
    assert copied(hnsw.levels)[-1] == 1
    begin = int(copied(hnsw.offsets)[hnsw.entry_point]) + int(copied(hnsw.cum_nneighbor_per_level)[hnsw.max_level])
    links = copied(hnsw.neighbors)
    links[begin : begin + 32] = N - 1
    faiss.copy_array_to_vector(links.astype(np.int32), hnsw.neighbors)


def measure_distances(index: Any) -> None:
    index.storage.metric_type = faiss.METRIC_L2


@pytest.mark.parametrize("n", [1, 2, 33, N])
def test_a_sound_graph_has_no_defect(tmp_path: Path, n: int) -> None:
    FaissIndex.open(write_faiss(tmp_path / "index.faiss", VECTORS[:n], "hnsw"), version="v").check_links()


@pytest.mark.parametrize(
    ("change", "defect"),
    [
        (number("neighbors", -1, -2), f"a link of its graph leads to none of its {N} rows"),
        (number("neighbors", -1, N), f"a link of its graph leads to none of its {N} rows"),
        (lead_to_a_lower_layer, "leads to a row that is not there"),
        (number("levels", 0, 0), "a row is on a layer that its graph does not have"),
        (number("levels", 0, 100), "a row is on a layer that its graph does not have"),
        (number("offsets", 1, 1), "a row does not have the links of its layers"),
        (number("offsets", 0, 64), "its rows and its links do not add up"),
        (number("offsets", N, 1 << 40), "its rows and its links do not add up"),
        (number("cum_nneighbor_per_level", 0, 1), "the layers of its graph are out of order"),
        (number("cum_nneighbor_per_level", 2, 3), "the layers of its graph are out of order"),
        (number("cum_nneighbor_per_level", 1, 65), "a row does not have the links of its layers"),
        (field("entry_point", N), f"its graph is entered at row {N} of {N}, on layer"),
        (field("entry_point", -1), f"its graph is entered at row -1 of {N}, on layer"),
        (field("max_level", 30), f" of {N}, on layer 30"),
        (field("max_level", -1), f" of {N}, on layer -1"),
        (measure_distances, "its vectors are not those of its graph"),
    ],
)
def test_what_would_lead_a_walk_astray_is_a_defect(path: Path, change: Callable[[Any], None], defect: str) -> None:
    index = faiss.read_index(str(path))
    change(index)
    with pytest.raises(IndexCorrupt, match="cannot be read") as raised:
        FaissIndex(index, version="v").check_links()
    assert defect in str(raised.value.data["reason"])


def test_a_damaged_length_is_refused_before_as_much_memory_is_asked_for(path: Path, tmp_path: Path) -> None:
    limit = faiss.get_deserialization_vector_byte_limit()
    content = bytearray(path.read_bytes())
    place = content.index(N.to_bytes(8, "little"), 64)
    content[place + 3] ^= 0x0F
    (tmp_path / "damaged.faiss").write_bytes(content)
    with pytest.raises(IndexCorrupt, match="byte_limit"):
        FaissIndex.open(tmp_path / "damaged.faiss", version="v")
    assert faiss.get_deserialization_vector_byte_limit() == limit
