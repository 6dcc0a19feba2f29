"""`bench index`: the vectors have the structure that they claim, and each figure means what its column says."""

import os
from pathlib import Path

import numpy as np
import pytest

from openbook.errors import SettingInvalid, SourceInvalid
from openbook.storage.index_store import IndexStore
from openbook_lab.benchmarks.children import Progress, in_child
from openbook_lab.benchmarks.index import find_truth, measure_indexes, specs
from openbook_lab.benchmarks.index_vectors import Places, blocks_of, draw, hold_out, prepare
from openbook_lab.evaluation.reports import Report
from tests.fixtures.indexes import publish_tiny

N, DIMENSION, QUESTIONS = 2000, 32, 40


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    folder = tmp_path_factory.mktemp("vectors")
    places = Places(folder / "given.npy", folder / "questions.npy")
    draw(places, N, DIMENSION, QUESTIONS, lambda _: None)
    return places


def silent(done: int, total: int | None, what: str) -> None:
    pass


def test_drawn_vectors_are_of_length_one_and_the_same_each_time(places: Places, tmp_path: Path) -> None:
    again = Places(tmp_path / "given.npy", tmp_path / "questions.npy")
    draw(again, N, DIMENSION, QUESTIONS, lambda _: None)
    for one, other in ((places.vectors, again.vectors), (places.queries, again.queries)):
        np.testing.assert_array_equal(np.load(one), np.load(other))
        np.testing.assert_allclose(np.linalg.norm(np.load(one), axis=1), 1, atol=1e-5)


def test_drawn_vectors_are_near_within_an_article_and_few_directions_hold_most(places: Places) -> None:
    vectors = np.load(places.vectors)  # (N, d)
    articles = vectors.reshape(-1, 20, DIMENSION)
    within = np.einsum("apd,aqd->apq", articles, articles).mean()
    assert within > 2 * abs((vectors[::20] @ vectors[::20].T).mean())
    spectrum = np.sort(np.linalg.eigvalsh(np.cov(vectors.T)))[::-1]
    assert spectrum[:8].sum() > 0.5 * spectrum.sum()
    # and none of them is an axis, which a product quantizer could cut along
    assert np.abs(np.linalg.eigh(np.cov(vectors.T))[1]).max() < 0.9


def test_the_truth_is_what_comparing_with_all_finds(places: Places, tmp_path: Path) -> None:
    find_truth(silent, places, tmp_path / "truth.npy")
    scores = np.load(places.queries).astype(np.float64) @ np.load(places.vectors).astype(np.float64).T
    np.testing.assert_array_equal(np.load(tmp_path / "truth.npy"), np.argsort(-scores, axis=1)[:, :10])


def test_each_type_is_measured_and_a_second_run_measures_nothing_again(places: Places, tmp_path: Path) -> None:
    chosen = specs(["flat", "hnsw", "RR32,IVF16,SQ8"], N, DIMENSION, {"m": 8, "nprobe": 4})
    said: list[str] = []

    def measured() -> Report:
        said.clear()
        return measure_indexes(
            tmp_path, places, chosen, origin="drawn", n_threads=1, progress=lambda *told: said.append(told[2])
        )

    report = measured()
    building, opening, searching, found = report.tables
    assert [row[0] for row in building.rows] == ["Flat", "HNSW8", "RR32,IVF16,SQ8"]
    assert len([line for line in said if line.endswith("done")]) == 3
    bytes_a_passage = [row[building.columns.index("bytes a passage")] for row in building.rows]
    assert bytes_a_passage[0] == pytest.approx(4 * DIMENSION, rel=0.01)
    assert isinstance(bytes_a_passage[2], float)
    assert bytes_a_passage[2] < 2 * DIMENSION
    assert [row[1:3] for row in searching.rows] == [(1, QUESTIONS), (8, QUESTIONS)] * 3
    recall = [row[found.columns.index("recall@5")] for row in found.rows]
    assert recall[0] == 1.0
    assert all(isinstance(one, float) and one > 0.8 for one in recall)
    assert [str(row[-1]).split(",")[0] for row in found.rows] == ["exact", "exact", "exact for float16"]
    assert len(opening.rows) == 3
    assert measured().tables == report.tables
    assert [line for line in said if not line.endswith("done")] == []


def test_questions_are_held_out_of_real_vectors(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float16)
    np.save(tmp_path / "file.npy", vectors)
    n_rows, blocks = blocks_of(tmp_path / "file.npy")
    places = Places(tmp_path / "given.npy", tmp_path / "questions.npy")
    hold_out(places, blocks, n_rows, 20, lambda _: None)
    kept, asked = np.load(places.vectors), np.load(places.queries)
    assert (kept.shape, asked.shape, kept.dtype) == ((80, 4), (20, 4), np.float32)
    assert {row.tobytes() for row in np.concatenate([kept, asked]).astype(np.float16)} == {
        row.tobytes() for row in vectors
    }
    with pytest.raises(SourceInvalid, match="too few"):
        hold_out(places, blocks, n_rows, 60, lambda _: None)


def test_the_vectors_of_a_version_are_taken(tmp_path: Path) -> None:
    publish_tiny(IndexStore(tmp_path / "indexes"), "tiny-2016")
    (tmp_path / "bench").mkdir()
    arguments = {"passages": 0, "dimension": 0, "n_questions": 4, "indexes": tmp_path / "indexes", "progress": silent}
    prepared = prepare(tmp_path / "bench", file=None, version="tiny-2016", **arguments)  # type: ignore[arg-type]
    assert (prepared.n_passages, prepared.dimension, prepared.origin) == (8, 32, "version tiny-2016")
    with pytest.raises(SettingInvalid, match="holds another run"):
        prepare(tmp_path / "bench", file=None, version="tiny-2018", **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("content", [b"", b"nonsense", "objects"])
def test_a_file_without_vectors_is_refused(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "file.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, np.array([1, 2, 3]))
    with pytest.raises(SourceInvalid):
        blocks_of(path)


def end(told: Progress, how: str) -> None:
    told(1, 2, "half")
    if how == "refused":
        raise SourceInvalid(source="s", reason="r")
    if how == "failed":
        raise KeyError("k")
    os._exit(9)


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ("refused", SourceInvalid, "s: r"),
        ("failed", RuntimeError, "end: KeyError"),
        ("ended", RuntimeError, "end ended with 9"),
    ],
)
def test_how_a_child_ends_is_raised_here(how: str, error: type[Exception], message: str) -> None:
    said: list[tuple[int, int | None, str]] = []
    with pytest.raises(error, match=message):
        in_child(lambda *told: said.append(told), end, how)
    assert said == [(1, 2, "half")]
