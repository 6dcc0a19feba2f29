"""A graph that loses some of its vectors and gains others, and lists that keep what they have learned."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from openbook.indexing.faiss_building import build_index, write_index
from openbook.indexing.faiss_carrying import CarriedGraph, CarriedTraining
from openbook.indexing.index_spec import choose_index
from openbook.storage.faiss_index import FaissIndex, read_learned
from tests.openbook.indexing.builds import Seen

N, DIMENSION, K = 1500, 16, 5
SPEC = choose_index("HNSW8", n_passages=N, dimension=DIMENSION, memory_bytes=None, ef_search=24)
CENTRES = np.random.default_rng(0).standard_normal((20, DIMENSION))


@pytest.fixture
def dice() -> np.random.Generator:
    return np.random.default_rng(1)


def vectors(dice: np.random.Generator, n: int) -> NDArray[np.float32]:
    near = CENTRES[dice.integers(0, len(CENTRES), n)]
    return np.asarray(near + 0.7 * dice.standard_normal((n, DIMENSION)), dtype=np.float32)


def recall(index: FaissIndex, rows: NDArray[np.float32], queries: NDArray[np.float32], n_found: int = K) -> float:
    exact = np.argsort(-(queries @ rows.T), axis=1)[:, :K]
    found = index.search(queries, n_found, parameters={"efSearch": 24, "nprobe": 4})
    return sum(len({*one} & {*best}) for one, best in zip(found.tolist(), exact.tolist(), strict=True)) / exact.size


@pytest.mark.parametrize("goes", ["here and there", "together"])
def test_a_carried_graph_finds_what_a_whole_one_does(dice: np.random.Generator, goes: str) -> None:
    rows, queries = vectors(dice, N), vectors(dice, 200)
    index = FaissIndex(build_index(rows, SPEC, n_threads=1), version="v")
    for _ in range(3):
        gone = dice.random(N) < 0.04
        if goes == "together":
            # all that is nearest to one centre, with most of its neighbours
            gone = np.zeros(N, dtype=bool)
            gone[np.argsort(-(rows @ CENTRES[dice.integers(0, 20)]))[:60]] = True
        kept = np.flatnonzero(~gone)
        rows = np.concatenate([rows[kept], vectors(dice, int(gone.sum()))])
        carried = CarriedGraph(index.graph(), kept)
        begun = carried.begun(SPEC, rows)
        assert begun.ntotal == len(kept)
        index = FaissIndex(build_index(rows, SPEC, n_threads=1, begun=lambda begun=begun: begun), version="v")
        index.check_links()
        np.testing.assert_array_equal(index.vectors(range(N)), rows)
    whole = FaissIndex(build_index(rows, SPEC, n_threads=1), version="v")
    assert recall(index, rows, queries) >= recall(whole, rows, queries) - 0.02


def test_what_loses_all_its_links_is_linked_again(dice: np.random.Generator) -> None:
    rows = vectors(dice, N)
    graph = FaissIndex(build_index(rows, SPEC, n_threads=1), version="v").graph()
    width = int(graph.per_layer[1])
    links = graph.neighbors[int(graph.offsets[7]) :][:width]
    kept = np.setdiff1d(np.arange(N), links)
    row = int(np.searchsorted(kept, 7))
    index = FaissIndex(CarriedGraph(graph, kept).begun(SPEC, rows[kept]), version="v")
    mended = index.graph()
    own = mended.neighbors[int(mended.offsets[row]) :][:width]
    assert (own >= 0).sum() >= 3
    others = np.delete(mended.neighbors, np.arange(int(mended.offsets[row]), int(mended.offsets[row + 1])))
    assert row in others
    assert index.search(rows[[7]], 1, parameters={"efSearch": 200})[0, 0] == np.argmax(rows[kept] @ rows[7])


@pytest.mark.parametrize("factory", ["PCA12,IVF16,PQ4x4", "IVF16_HNSW4,SQ8", "PQ4x4", "HNSW8,SQ8"])
def test_lists_that_keep_what_they_learned_find_what_those_do_that_learn_anew(
    dice: np.random.Generator, tmp_path: Path, factory: str
) -> None:
    spec = choose_index(factory, n_passages=N, dimension=DIMENSION, memory_bytes=None)
    rows, queries = vectors(dice, N), vectors(dice, 200)
    write_index(tmp_path / "base", rows, spec, n_threads=1)
    rows = np.concatenate([rows[N // 10 :], vectors(dice, N // 10)])
    seen, carried = Seen(), CarriedTraining(lambda: read_learned(tmp_path / "base"))
    kept = build_index(rows, spec, n_threads=1, begun=lambda: carried.begun(spec, rows), report=seen.update)
    assert {what for _, _, what in seen.steps} == {"add"}
    index = FaissIndex(kept, version="v", factory=factory)
    index.check_links()
    anew = FaissIndex(build_index(rows, spec, n_threads=1), version="v")
    # they propose candidates, which are then compared exactly
    # 16 codewords more or less by chance move it by up to 5 points
    assert recall(index, rows, queries, 4 * K) >= recall(anew, rows, queries, 4 * K) - 0.05
