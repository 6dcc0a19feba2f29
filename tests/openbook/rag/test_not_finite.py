"""Bytes of an index that are no numbers: the version is corrupt, and no answer has a prior of NaN."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from openbook.entities import AnswerOptions, PriorWeights
from openbook.errors import IndexCorrupt
from openbook.indexing.bm25_publish import add_bm25
from openbook.rag.engine import RagEngine
from openbook.rag.retriever import CANDIDATES, DenseRetriever, HybridRetriever, QuestionEncoder, Search
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import INDEX_FILE, VECTORS_FILE
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.indexes import publish_tiny, tiny_passages, tiny_vectors
from tests.openbook.rag.conftest import Subject

# more than the candidates of one search, so that a search need not propose a row that it cannot compare
PASSAGES = [
    replace(one, passage_id=f"{one.passage_id}-{turn}", text=f"{one.text} {turn}")
    for turn in range(CANDIDATES // 12 + 1)
    for one in tiny_passages("tiny-2016")
]
VECTORS = tiny_vectors(PASSAGES)
N_ROWS = len(VECTORS)
QUESTIONS = ["who is the president of peru ?"]


def spoilt(folder: Path, index_type: str, value: float, rows: range) -> IndexSnapshot:
    """A version, and then `value` in the vectors of these rows."""
    store = IndexStore(folder)
    publish_tiny(store, "tiny-2016", passages=PASSAGES, vectors=VECTORS, index_type=index_type)
    add_bm25(store, "tiny-2016")
    # a lossy index has its vectors beside it, in half precision
    name, dtype = (INDEX_FILE, np.float32) if index_type in ("flat", "hnsw") else (VECTORS_FILE, np.float16)
    file = folder / "tiny-2016" / name
    content = file.read_bytes()
    for vector in VECTORS[rows.start : rows.stop].astype(dtype):
        assert content.count(vector.tobytes()) == 1
        content = content.replace(vector.tobytes(), np.full_like(vector, value).tobytes())
    file.write_bytes(content)
    return store.open("tiny-2016")


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("index_type", ["flat", "hnsw", "IVF2,Flat"])
def test_an_index_without_a_finite_vector_is_corrupt_and_no_internal_error(
    tiny: Subject, engine: RagEngine, index_type: str, value: float, tmp_path: Path
) -> None:
    snapshot = spoilt(tmp_path, index_type, value, range(N_ROWS))
    with np.errstate(invalid="ignore"), pytest.raises(IndexCorrupt, match="finite"):
        engine.answer(QUESTIONS, snapshot, AnswerOptions(n_docs=2))
    snapshot.close()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_candidate_without_a_finite_product_is_corrupt(tiny: Subject, value: float, tmp_path: Path) -> None:
    """BM25 proposes the row, whatever a dense search makes of it."""
    snapshot = spoilt(tmp_path, "flat", value, range(3, 4))
    vectors = QuestionEncoder(tiny.checkpoint).encode(QUESTIONS)
    hybrid = HybridRetriever(PriorWeights(1.0, 0.5))
    with np.errstate(invalid="ignore"), pytest.raises(IndexCorrupt, match="the doc_score of row 3 is"):
        hybrid.search(Search(QUESTIONS, vectors, snapshot, 2))
    snapshot.close()


def test_products_that_are_too_large_for_the_scale_are_corrupt(tiny: Subject, tmp_path: Path) -> None:
    """Each number of a vector may be finite, and what is made of them not."""
    snapshot = spoilt(tmp_path, "flat", 1e38, range(N_ROWS))
    vectors = QuestionEncoder(tiny.checkpoint).encode(QUESTIONS)
    with np.errstate(over="ignore"), pytest.raises(IndexCorrupt, match="not a finite number"):
        DenseRetriever(scale=1e300).search(Search(QUESTIONS, np.abs(vectors), snapshot, 2))
    snapshot.close()
