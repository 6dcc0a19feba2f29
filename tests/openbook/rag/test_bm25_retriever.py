"""BM25 behind the retriever's protocol, and through the engine: its scores are the logits of p(z | x)."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from openbook.entities import AnswerOptions
from openbook.errors import RetrieverUnavailable
from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.engine import RagEngine
from openbook.rag.retriever import Bm25Retriever
from openbook.storage.index_store import IndexStore
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.indexes import publish_tiny, tiny_passages
from tests.openbook.rag.conftest import Case, Subject

QUESTION = "who is the president of peru ?"
NO_VECTORS = np.empty((0, 0), dtype=np.float32)
BM25 = AnswerOptions(n_docs=4, retriever="bm25")


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexSnapshot]:
    store = IndexStore(tmp_path_factory.mktemp("indexes"))
    publish_tiny(store, "tiny-2016")
    add_bm25(store, "tiny-2016")
    opened = store.open("tiny-2016")
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def engine(tiny: Subject) -> RagEngine:
    return RagEngine(tiny.checkpoint)


def test_passages_come_best_first_with_the_scores_of_bm25(snapshot: IndexSnapshot) -> None:
    retriever = Bm25Retriever()
    first, second = retriever.search([QUESTION, "the long river"], NO_VECTORS, snapshot, 4)
    assert first.passages[0].passage_id == "peru"
    assert second.passages[0].passage_id == "river"
    passages = tiny_passages("tiny-2016")
    for question, found in ((QUESTION, first), ("the long river", second)):
        scores = snapshot.bm25().scores(question)
        assert found.doc_scores == pytest.approx(sorted(scores.tolist(), reverse=True)[:4])
        assert found.doc_scores == tuple(scores[list(found.rows)].tolist())
        assert found.passages == tuple(passages[row] for row in found.rows)


def test_an_answer_reads_the_passages_and_the_prior_of_bm25(
    tiny: Subject, engine: RagEngine, snapshot: IndexSnapshot
) -> None:
    """RAG-Token's greedy answer, against the plain loops over the same passages and scores."""
    (found,) = Bm25Retriever().search([QUESTION], NO_VECTORS, snapshot, 5)
    case = Case(QUESTION, found.passages, found.doc_scores)
    options = AnswerOptions(num_beams=1, max_new_tokens=6, retriever="bm25")
    (answer,) = engine.answer([QUESTION], snapshot, options)
    assert tuple(one.passage for one in answer.passages) == found.passages
    prior = torch.tensor(found.doc_scores, dtype=torch.float64).softmax(0).tolist()
    assert [one.prior for one in answer.passages] == pytest.approx(prior, abs=1e-6)
    assert [one.doc_score for one in answer.passages] == list(found.doc_scores)
    reference = tiny.reference(case)
    (scored,) = engine.score([QUESTION], ["peru", "the sea"], snapshot, options)
    for target in scored.targets:
        ids = tiny.generator.target_ids([target.target])[0]
        assert target.log_prob == pytest.approx(reference.rag_token_log_prob(ids), abs=1e-3)


def test_retrievers_differ_and_the_dense_one_is_the_default(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    asked = (AnswerOptions(n_docs=12), AnswerOptions(n_docs=12, retriever="dense"), replace(BM25, n_docs=12))
    default, dense, bm25 = (engine.retrieve([QUESTION], snapshot, options)[0] for options in asked)
    assert default.passages == dense.passages != bm25.passages
    assert bm25.passages[0].passage.passage_id == "peru"
    assert bm25.source.seconds.encode < dense.source.seconds.encode


def test_a_version_without_its_files_is_refused_with_the_command_that_adds_them(
    engine: RagEngine, tiny_indexes: Path
) -> None:
    snapshot = IndexStore(tiny_indexes).open("tiny-2016")
    with pytest.raises(RetrieverUnavailable, match="openbook index bm25 tiny-2016"):
        engine.retrieve([QUESTION], snapshot, BM25)
    assert engine.retrieve([QUESTION], snapshot, AnswerOptions())[0].passages
    snapshot.close()
