"""`bench index`: the vectors have the structure that they claim, and the truth is the truth."""

from pathlib import Path

import numpy as np
import pytest

from openbook.errors import SettingInvalid, SourceInvalid
from openbook.storage.index_store import IndexStore
from openbook_lab.benchmarks.children import silent
from openbook_lab.benchmarks.index import find_truth
from openbook_lab.benchmarks.index_vectors import Places, VectorsAsked, draw, hold_out
from tests.fixtures.indexes import publish_tiny

N, DIMENSION, QUESTIONS = 2000, 32, 40


def places_in(folder: Path) -> Places:
    return Places(folder / "given.npy", folder / "questions.npy")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    places = places_in(tmp_path_factory.mktemp("vectors"))
    draw(silent, places, N, DIMENSION, QUESTIONS)
    return places


def test_drawn_vectors_are_of_length_one_and_the_same_each_time(places: Places, tmp_path: Path) -> None:
    again = places_in(tmp_path)
    draw(silent, again, N, DIMENSION, QUESTIONS)
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


def test_questions_are_held_out_of_real_vectors(tmp_path: Path) -> None:
    vectors = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float16)
    blocks = [vectors[:70], vectors[70:]]
    places = places_in(tmp_path)
    hold_out(places, 100, blocks, 20, silent)
    kept, asked = np.load(places.vectors), np.load(places.queries)
    assert (kept.shape, asked.shape, kept.dtype) == ((80, 4), (20, 4), np.float32)
    assert {row.tobytes() for row in np.concatenate([kept, asked]).astype(np.float16)} == {
        row.tobytes() for row in vectors
    }
    with pytest.raises(SourceInvalid, match="too few"):
        hold_out(places, 100, blocks, 60, silent)


def test_the_vectors_of_a_version_are_taken(tmp_path: Path) -> None:
    publish_tiny(IndexStore(tmp_path / "indexes"), "tiny-2016")
    (tmp_path / "bench").mkdir()
    prepared = VectorsAsked(version="tiny-2016", questions=4).prepare(tmp_path / "bench", tmp_path / "indexes", silent)
    assert (*prepared.shape, prepared.origin) == (8, 32, "version tiny-2016")
    with pytest.raises(SettingInvalid, match="holds another run"):
        VectorsAsked(version="tiny-2018", questions=4).prepare(tmp_path / "bench", tmp_path / "indexes", silent)
