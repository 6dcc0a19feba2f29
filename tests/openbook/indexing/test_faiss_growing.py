"""A graph that gains vectors and masks those that went, and lists that keep what they have learned."""

from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
from numpy.typing import NDArray

from openbook.errors import IndexCorrupt
from openbook.indexing.faiss_building import Begun, build_index, write_index
from openbook.indexing.index_spec import choose_index
from openbook.storage.faiss_index import FaissIndex, read_whole
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


def grown(
    index: Any, masked: NDArray[np.int64], gone: NDArray[np.bool_], rows: NDArray[np.float32]
) -> tuple[Any, NDArray[np.int64]]:
    """`index` without the rows that are `gone`, and with those of `rows` that it lacks; and what is masked then."""
    masked = FaissIndex(index, version="v", masked=masked).masked_but(~gone)
    return build_index(rows, SPEC, n_threads=1, begun=Begun(lambda: index, masked)), masked


@pytest.mark.parametrize("goes", ["here and there", "together"])
def test_a_graph_with_masked_rows_finds_what_a_whole_one_does(dice: np.random.Generator, goes: str) -> None:
    rows, queries = vectors(dice, N), vectors(dice, 200)
    raw, masked = build_index(rows, SPEC, n_threads=1), np.empty(0, dtype=np.int64)
    for _ in range(3):
        gone = dice.random(N) < 0.04
        if goes == "together":
            # all that is nearest to one centre, with most of its neighbours
            gone = np.zeros(N, dtype=bool)
            gone[np.argsort(-(rows @ CENTRES[dice.integers(0, 20)]))[:60]] = True
        went, rows = rows[gone], np.concatenate([rows[~gone], vectors(dice, int(gone.sum()))])
        raw, masked = grown(raw, masked, gone, rows)
        index = FaissIndex(raw, version="v", masked=masked)
        index.check_links()
        assert index.n_vectors == N
        np.testing.assert_array_equal(index.vectors(range(N)), rows)
        # a vector that went finds others, by comparing with all and by a walk
        found = index.search(went, K, parameters={"efSearch": 200})
        np.testing.assert_array_equal(found, np.argsort(-(went @ rows.T), axis=1, kind="stable")[:, :K])
        assert recall(index, rows, went) > 0.85
    whole = FaissIndex(build_index(rows, SPEC, n_threads=1), version="v")
    assert recall(index, rows, queries) >= recall(whole, rows, queries) - 0.02


def test_a_filter_over_masked_rows_counts_the_rows_of_the_passages(dice: np.random.Generator) -> None:
    rows, queries = vectors(dice, N), vectors(dice, 20)
    gone, allowed = dice.random(N) < 0.1, dice.random(N) < 0.5
    rows_after = np.concatenate([rows[~gone], vectors(dice, int(gone.sum()))])
    raw, masked = grown(build_index(rows, SPEC, n_threads=1), np.empty(0, dtype=np.int64), gone, rows_after)
    index = FaissIndex(raw, version="v", masked=masked)
    scores = np.where(allowed, queries @ rows_after.T, -np.inf)
    found = index.search(queries, K, parameters={"efSearch": N}, allowed=allowed)
    np.testing.assert_array_equal(found, np.argsort(-scores, axis=1)[:, :K])


@pytest.mark.parametrize("masked", [[-1, 3], [3, N], [3, 3], [4, 3]])
def test_masked_places_that_are_not_in_the_index_are_refused(tmp_path: Path, masked: list[int]) -> None:
    path = tmp_path / "index.faiss"
    write_index(path, build_index(vectors(np.random.default_rng(1), N), SPEC, n_threads=1))
    with pytest.raises(IndexCorrupt, match=r"masked\.npy"):
        FaissIndex.open(path, version="v", masked=np.array(masked))


@pytest.mark.parametrize("factory", ["PCA12,IVF16,PQ4x4", "IVF16_HNSW4,SQ8", "PQ4x4", "HNSW8,SQ8"])
def test_lists_that_keep_what_they_learned_find_what_those_do_that_learn_anew(
    dice: np.random.Generator, tmp_path: Path, factory: str
) -> None:
    spec = choose_index(factory, n_passages=N, dimension=DIMENSION, memory_bytes=None)
    rows, queries = vectors(dice, N), vectors(dice, 200)
    write_index(tmp_path / "base", build_index(rows, spec, n_threads=1))
    rows = np.concatenate([rows[N // 10 :], vectors(dice, N // 10)])
    learned = read_whole(tmp_path / "base")
    learned.reset()
    seen = Seen()
    kept = build_index(rows, spec, n_threads=1, begun=Begun(partial(faiss.clone_index, learned)), report=seen.update)
    assert {what for _, _, what in seen.steps} == {"add"}
    index = FaissIndex(kept, version="v")
    index.check_links()
    anew = FaissIndex(build_index(rows, spec, n_threads=1), version="v")
    # they propose candidates, which are then compared exactly
    # 16 codewords more or less by chance move it by up to 5 points
    assert recall(index, rows, queries, 4 * K) >= recall(anew, rows, queries, 4 * K) - 0.05
