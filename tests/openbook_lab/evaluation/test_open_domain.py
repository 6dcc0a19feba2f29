"""Which passages a question is read with, and what the tables make of the answers, worked out by hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openbook.entities import Passage, PriorWeights, RetrievedPassages
from openbook.errors import NotCalibrated
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.retriever import QuestionEncoder
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.golds import Golds
from openbook_lab.evaluation.asked import QuestionSet
from openbook_lab.evaluation.book import frozen_vectors
from openbook_lab.evaluation.marks import Marks
from openbook_lab.evaluation.open_domain import Row, asked_with, recall_table, sweep_table
from openbook_lab.evaluation.options import Options
from openbook_lab.evaluation.reader import GREEDY, Decode
from openbook_lab.evaluation.retrieval import RetrievalFigures, retrieve
from tests.fixtures.evaluation import mean

# rows of the book: 0 Peru, 1 and 2 Kenya, 3 Chile, 4 Lima, 5 Nepal
FOUND = ((3, 4, 0, 5), (3, 5, 4, 1), (2, 1, 0, 3), (0, 3, 4, 5))


@pytest.fixture
def retrieval(book: tuple[Passage, ...]) -> RetrievalFigures:
    """Four questions with what was found for them, as written above."""
    found = tuple(RetrievedPassages(rows, tuple(book[row] for row in rows), (0.0,) * 4) for rows in FOUND)
    return RetrievalFigures("tiny", found)


def test_the_best_passages_come_with_their_inner_products(
    checkpoint: Checkpoint, asked: QuestionSet, snapshot: IndexSnapshot
) -> None:
    texts = [question.text for question in asked.chosen]
    found, vectors = retrieve(checkpoint, texts, snapshot), QuestionEncoder(checkpoint).encode(texts)  # (Q, d)
    for question, rows, vector in zip(found.best(texts, 2), found.found, vectors, strict=True):
        assert question.passages == snapshot.passages(rows.rows[:2])
        expected = snapshot.vectors(rows.rows[:2]).astype(float) @ vector.astype(float)  # (2,)
        assert question.doc_scores == pytest.approx(expected.tolist())


def test_recall_counts_answers_in_any_passage(retrieval: RetrievalFigures, asked: QuestionSet) -> None:
    table = recall_table([retrieval], [Golds(question.answers) for question in asked.chosen], 6)
    # nairobi alone; and lima, in row 4 and in its own row 0
    assert [(row[1], row[2], mean(row[3])) for row in table.rows] == [(1, 4, 25.0), (5, 4, 50.0), (20, 4, 50.0)]


def test_frozen_retrieval_is_the_passage_encoders_own(
    checkpoint: Checkpoint, asked: QuestionSet, snapshot: IndexSnapshot, tiny_encoder: Path
) -> None:
    texts = [question.text for question in asked.chosen]
    frozen = retrieve(checkpoint, texts, snapshot, "frozen", tiny_encoder)
    scores = PassageEncoder.load(tiny_encoder).encode_texts(texts) @ snapshot.vectors(range(6)).T  # (Q, N)
    assert [found.rows[0] for found in frozen.found] == scores.argmax(axis=1).tolist()
    learned = QuestionEncoder(checkpoint).encode(texts)  # (Q, d)
    vectors = frozen_vectors(texts, learned, tiny_encoder)  # (Q, d)
    lengths = [float(np.linalg.norm(one, axis=1).mean()) for one in (learned, vectors)]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-5)


def test_bm25_retrieval_scores_every_passage_with_bm25(
    checkpoint: Checkpoint, asked: QuestionSet, snapshot: IndexSnapshot
) -> None:
    bm25 = retrieve(checkpoint, [question.text for question in asked.chosen], snapshot, "bm25")
    assert (bm25.name, bm25.retriever) == (f"{checkpoint.name}, BM25", "bm25")
    for question, found in zip(asked.chosen, bm25.found, strict=True):
        scores = snapshot.bm25().scores(question.text).tolist()  # (N,)
        best = sorted(range(6), key=lambda row: (-scores[row], row))
        assert found.rows == tuple(best)
        assert found.doc_scores == tuple(scores[row] for row in best)


def test_hybrid_retrieval_weighs_both_scores_as_the_checkpoint_says(
    checkpoint: Checkpoint, asked: QuestionSet, snapshot: IndexSnapshot
) -> None:
    texts = [question.text for question in asked.chosen]
    with pytest.raises(NotCalibrated):
        retrieve(checkpoint, texts, snapshot, "hybrid")
    weighed = replace(checkpoint, facts=replace(checkpoint.facts, prior=PriorWeights(0.5, 2.0)))
    hybrid = retrieve(weighed, texts, snapshot, "hybrid")
    assert hybrid.name == f"{checkpoint.name}, hybrid"
    vectors = QuestionEncoder(checkpoint).encode(texts)  # (Q, d)
    dense = vectors.astype(np.float64) @ snapshot.vectors(range(6)).astype(np.float64).T  # (Q, N)
    for number, (text, best) in enumerate(zip(texts, hybrid.best(texts, 3), strict=True)):
        scores = 0.5 * dense[number] + 2.0 * snapshot.bm25().scores(text)  # (N,)
        assert best.doc_scores == pytest.approx(sorted(scores, reverse=True)[:3])


def test_what_two_parts_want_is_asked_once() -> None:
    beams, thorough = Decode("token", 4), Decode("sequence", 4)
    assert asked_with(Options(k=(1, 5, 8), num_beams=4), ["decodings", "sweep"]) == {
        5: [GREEDY, beams, thorough, Decode("sequence", 4, "fast")],
        1: [GREEDY, beams],
        8: [GREEDY, thorough],
    }


def marks(*values: float) -> Marks:
    return Marks({"EM": values, "F1": values, "named": values})


def test_the_sweep_has_recall_beside_the_marks_and_one_passage_is_one_model(
    retrieval: RetrievalFigures, asked: QuestionSet
) -> None:
    yes, no = marks(1.0, 1.0, 1.0, 1.0), marks(0.0, 0.0, 0.0, 0.0)
    rows = [
        Row("tiny", 1, GREEDY, no),
        Row("tiny", 1, Decode("token", 4), yes),
        Row("tiny", 2, GREEDY, yes),
        Row("tiny", 2, Decode("sequence", 4), no),
        Row("another", 2, GREEDY, no),
    ]
    golds = [Golds(question.answers) for question in asked.chosen]
    table = sweep_table(retrieval, rows, golds, Options(k=(2, 1), num_beams=4))
    # of the first two passages rows 4 and 1 say lima and nairobi: the third and the first question
    assert [(row[1], str(row[2]).split(",")[0], mean(row[4]), mean(row[-1])) for row in table.rows] == [
        (1, "RAG-Token", 0.0, 25.0),
        (1, "RAG-Sequence", 100.0, 25.0),
        (2, "RAG-Token", 100.0, 50.0),
        (2, "RAG-Sequence", 0.0, 50.0),
    ]
