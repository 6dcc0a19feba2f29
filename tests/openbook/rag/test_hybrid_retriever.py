"""Both retrievers at once: a weighted sum of the two scores of a passage is its doc_score."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from openbook.entities import AnswerOptions, Passage, PriorWeights
from openbook.errors import InvalidRequest, NotCalibrated, RetrieverUnavailable
from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.engine import RagEngine
from openbook.rag.retriever import Bm25Retriever, HybridRetriever, QuestionEncoder, Search
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.checkpoints import WORDS
from tests.fixtures.databases import IN_MILVUS, publish_as
from tests.fixtures.indexes import publish_tiny, tiny_vectors
from tests.openbook.rag.conftest import Case, Subject

WEIGHTS = PriorWeights(dense=0.8, bm25=0.45)
N_ROWS = 300
QUESTIONS = ["who is the president of peru ?", "gdp of ghana ghana", "the small island", "zzz"]
HYBRID = AnswerOptions(n_docs=4, retriever="hybrid")


@pytest.fixture(scope="module")
def encoder(tiny: Subject) -> QuestionEncoder:
    return QuestionEncoder(tiny.checkpoint)


@pytest.fixture(scope="module", params=["flat", "hnsw", IN_MILVUS])
def large(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexSnapshot]:
    """Many more rows than the candidates of one search."""
    dice = np.random.default_rng(5)
    words = WORDS.split()
    passages = [
        Passage(f"p{row}", " ".join(dice.choice(words, 2)), " ".join(dice.choice(words, dice.integers(3, 30))))
        for row in range(N_ROWS)
    ]
    yield from opened(publish_as(request.param, tmp_path_factory, passages=passages, vectors=tiny_vectors(passages)))


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexSnapshot]:
    """Twelve rows: every one is a candidate."""
    store = IndexStore(tmp_path_factory.mktemp("indexes"))
    publish_tiny(store, "tiny-2016")
    yield from opened(store)


def opened(store: IndexStore) -> Iterator[IndexSnapshot]:
    add_bm25(store, "tiny-2016")
    snapshot = store.open("tiny-2016")
    yield snapshot
    snapshot.close()


@pytest.fixture(scope="module")
def calibrated(tiny: Subject) -> RagEngine:
    return RagEngine(replace(tiny.checkpoint, facts=replace(tiny.checkpoint.facts, prior=WEIGHTS)))


def both_scores(
    encoder: QuestionEncoder, snapshot: IndexSnapshot, question: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of every row, one at a time."""
    vector = encoder.encode([question])[0].astype(np.float64)  # (d,)
    products = [float(snapshot.vectors([row])[0].astype(np.float64) @ vector) for row in range(len(snapshot))]
    return np.array(products), snapshot.bm25().scores(question).astype(np.float64)


@pytest.mark.parametrize("n_docs", [1, 5, 12])
@pytest.mark.parametrize("weights", [WEIGHTS, PriorWeights(0.1, 3.0), PriorWeights(2, 0), PriorWeights(0, 1)])
def test_in_a_small_index_the_best_of_all_rows_are_found(
    encoder: QuestionEncoder, small: IndexSnapshot, weights: PriorWeights, n_docs: int
) -> None:
    found = HybridRetriever(weights).search(Search(QUESTIONS, encoder.encode(QUESTIONS), small, n_docs))
    for question, of_question in zip(QUESTIONS, found, strict=True):
        products, bm25 = both_scores(encoder, small, question)
        expected = sorted(
            (
                (weights.dense * product + weights.bm25 * words, row)
                for row, (product, words) in enumerate(zip(products.tolist(), bm25.tolist(), strict=True))
            ),
            key=lambda one: (-one[0], one[1]),
        )[:n_docs]
        assert of_question.rows == tuple(row for _, row in expected)
        assert of_question.doc_scores == pytest.approx([score for score, _ in expected], abs=1e-4)
        assert of_question.passages == small.passages(of_question.rows)


@pytest.mark.parametrize(("n_docs", "share"), [(4, 1.0), (60, 1.0), (4, 0.5), (60, 0.9), (4, 0.1)])
def test_a_candidate_of_either_search_has_both_scores(
    encoder: QuestionEncoder, large: IndexSnapshot, n_docs: int, share: float
) -> None:
    """The reference takes the candidates from the rankings of all rows; the graph of hnsw reaches all rows here.

    With a share of the rows allowed, from the rankings of those.
    """
    search = (("efSearch", N_ROWS),) if large.info.index_type == "hnsw" else ()
    allowed = np.random.default_rng(3).random(N_ROWS) < share if share < 1 else None
    found = HybridRetriever(WEIGHTS).search(
        Search(QUESTIONS, encoder.encode(QUESTIONS), large, n_docs, search, allowed)
    )
    n_candidates = max(n_docs, 50)
    apart = 0
    for question, of_question in zip(QUESTIONS, found, strict=True):
        products, bm25 = both_scores(encoder, large, question)
        rows = np.flatnonzero(allowed) if allowed is not None else np.arange(N_ROWS)
        near, worded = (
            set(rows[np.argsort(-one[rows], kind="stable")[:n_candidates]].tolist()) for one in (products, bm25)
        )
        weighed = WEIGHTS.dense * products + WEIGHTS.bm25 * bm25
        expected = sorted(near | worded, key=lambda row: (-weighed[row], row))[:n_docs]
        assert list(of_question.rows) == expected
        assert of_question.doc_scores == pytest.approx(weighed[expected].tolist(), abs=1e-4)
        apart += len(set(expected) - near) + len(set(expected) - worded)
    assert apart or share == 0.1, "some passages are to come from one search alone"


def test_an_answer_reads_the_weighed_prior(tiny: Subject, calibrated: RagEngine, small: IndexSnapshot) -> None:
    """RAG-Token's log-probs, against the plain loops over the same passages and scores."""
    question, options = QUESTIONS[0], AnswerOptions(n_docs=5, num_beams=1, max_new_tokens=6, retriever="hybrid")
    vectors = QuestionEncoder(tiny.checkpoint).encode([question])
    (found,) = HybridRetriever(WEIGHTS).search(Search([question], vectors, small, 5))
    (answer,) = calibrated.answer([question], small, options)
    assert answer.source.retriever == "hybrid"
    assert tuple(one.passage for one in answer.passages) == found.passages
    prior = torch.tensor(found.doc_scores, dtype=torch.float64).softmax(0).tolist()
    assert [one.prior for one in answer.passages] == pytest.approx(prior, abs=1e-6)
    reference = tiny.reference(Case(question, found.passages, found.doc_scores))
    (scored,) = calibrated.score([question], ["peru", "the sea"], small, options)
    for target in scored.targets:
        ids = tiny.generator.target_ids([target.target])[0]
        assert target.log_prob == pytest.approx(reference.rag_token_log_prob(ids), abs=1e-3)


def test_what_lacks_a_part_of_it_is_refused_with_the_command_that_makes_it(
    engine: RagEngine, calibrated: RagEngine, small: IndexSnapshot, snapshot: IndexSnapshot
) -> None:
    with pytest.raises(NotCalibrated, match=r"retriever 'hybrid'.*'prior'.*openbook calibrate"):
        engine.retrieve(["who"], small, HYBRID)
    with pytest.raises(RetrieverUnavailable, match=r"'hybrid'.*openbook index bm25 tiny-2016"):
        calibrated.retrieve(["who"], snapshot, HYBRID)
    with pytest.raises(InvalidRequest, match="13 passages"):
        calibrated.retrieve(["who"], small, replace(HYBRID, n_docs=13))


def test_bm25_alone_finds_the_best_first_with_its_scores(small: IndexSnapshot) -> None:
    found = Bm25Retriever().search(Search(QUESTIONS[:2], np.empty((0, 0), dtype=np.float32), small, 4))
    for question, of_question in zip(QUESTIONS, found, strict=False):
        scores = small.bm25().scores(question)
        assert of_question.doc_scores == pytest.approx(sorted(scores.tolist(), reverse=True)[:4])
        assert of_question.doc_scores == tuple(scores[list(of_question.rows)].tolist())
        assert of_question.passages == small.passages(of_question.rows)
