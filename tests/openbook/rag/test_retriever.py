"""Questions to passages: exact inner products, best first, over real FAISS indexes."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from openbook.rag.retriever import DenseRetriever, QuestionEncoder, Search
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.databases import IN_MILVUS, publish_as
from tests.fixtures.indexes import publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.rag.conftest import Subject

QUESTIONS = ["Who is the President of Peru?", "the sea", "what is the population of kenya in that year and who says it"]


@pytest.fixture(scope="module")
def encoder(tiny: Subject) -> QuestionEncoder:
    return QuestionEncoder(tiny.checkpoint)


@pytest.fixture(scope="module", params=["flat", "hnsw", IN_MILVUS])
def snapshot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexSnapshot]:
    opened = publish_as(request.param, tmp_path_factory).open("tiny-2016")
    yield opened
    opened.close()


def test_a_question_vector_is_the_encoders_for_the_question_alone(tiny: Subject, encoder: QuestionEncoder) -> None:
    """Padding in a batch changes nothing, and neither does the casing that the tokenizer folds."""
    together = encoder.encode(QUESTIONS)
    assert together.dtype == np.float32
    assert together.shape == (3, encoder.dimension) == (3, 32)
    for question, vector in zip(QUESTIONS, together, strict=True):
        ids = torch.tensor([tiny.checkpoint.question_tokenizer(question.lower())["input_ids"]])
        with torch.no_grad():
            alone = tiny.rag.rag.question_encoder(ids)[0][0]  # (d,)
        assert vector == pytest.approx(alone.numpy(), abs=1e-4)


def test_a_question_longer_than_the_encoder_reads_is_cut(encoder: QuestionEncoder) -> None:
    assert np.isfinite(encoder.encode(["who " * 5000])).all()


@pytest.mark.parametrize("n_docs", [1, 3, 12])
def test_scores_are_exact_inner_products_best_first(
    encoder: QuestionEncoder, snapshot: IndexSnapshot, n_docs: int
) -> None:
    passages = tiny_passages("tiny-2016")
    stored = tiny_vectors(passages).astype(np.float64)  # (N, d)
    for question, found in zip(
        QUESTIONS, DenseRetriever().search(Search(QUESTIONS, encoder.encode(QUESTIONS), snapshot, n_docs)), strict=True
    ):
        products = stored @ encoder.encode([question])[0].astype(np.float64)  # (N,)
        best = np.argsort(-products)[:n_docs]
        assert found.rows == tuple(best)
        assert found.passages == tuple(passages[row] for row in best)
        # vectors may be stored in half precision
        assert found.doc_scores == pytest.approx(products[best].tolist(), abs=2e-2)
        vectors = snapshot.vectors(found.rows).astype(np.float64)
        exact = vectors @ encoder.encode([question])[0].astype(np.float64)
        assert found.doc_scores == pytest.approx(exact.tolist(), abs=1e-4)
        assert list(found.doc_scores) == sorted(found.doc_scores, reverse=True)


def test_the_order_is_that_of_the_exact_products_where_the_index_rounds(
    encoder: QuestionEncoder, tmp_path: Path
) -> None:
    """Long vectors, all but orthogonal to the question: in float32 their small products drown in rounding."""
    question = encoder.encode(["who"])[0].astype(np.float64)  # (d,)
    dice = np.random.default_rng(0)
    noise = dice.standard_normal((12, 32)) * 1e5
    across = noise - np.outer(noise @ question, question) / (question @ question)  # (N, d)
    along = np.outer(dice.permutation(12) * 1e-3, question)  # (N, d)
    vectors = (across + along).astype(np.float32)
    store = IndexStore(tmp_path)
    publish_tiny(store, "tiny-2016", vectors=vectors)
    snapshot = store.open("tiny-2016")
    exact = vectors.astype(np.float64) @ question  # (N,)
    (found,) = DenseRetriever().search(Search(["who"], encoder.encode(["who"]), snapshot, 12))
    assert found.rows == tuple(np.argsort(-exact))
    assert found.doc_scores == pytest.approx(sorted(exact, reverse=True), abs=1e-9)
    assert found.rows != tuple(np.argsort(-vectors @ encoder.encode(["who"])[0])), "float32 is to be misled"
    snapshot.close()
