"""question -> the K passages with the largest scores, and those scores: inner products, BM25, both together, or the
logits of a reranker."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from openbook.entities import PriorWeights, RetrievedPassages, SearchChanges
from openbook.errors import IndexCorrupt, InvalidRequest
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.decoder import BetweenSteps, nothing
from openbook.rag.encoder_head import TextVectors
from openbook.rag.reranker import Reranker
from openbook.storage.bm25_index import best_rows
from openbook.storage.snapshot import IndexSnapshot

# Rows that a retriever of candidates takes from each of its searches, where a question asks for fewer passages.
CANDIDATES = 50
# The rows that may be found, (N,); None: all of them. Where they are fewer than n_docs, K is their number.
Allowed = NDArray[np.bool_] | None


class QuestionEncoder:
    """BERT over the question, as DPR has it (section 2.2), or a sentence-transformers model: texts -> vectors whose
    inner product with a passage's vector is its doc_score."""

    def __init__(self, checkpoint: Checkpoint, *, keep_weights: bool = True) -> None:
        """Without `keep_weights` the checkpoint's question encoder gives its weights away."""
        config = checkpoint.question_encoder.config
        self._tokenizer = checkpoint.question_tokenizer
        self._head = head = checkpoint.question_head
        pad = self._tokenizer.pad_token_id or 0
        self._vectors = TextVectors(checkpoint.question_encoder, head, pad, keep=keep_weights)
        if head is None:
            self._max_length = int(config.max_position_embeddings)
            self.dimension = int(config.projection_dim or config.hidden_size)
        else:
            self._max_length = head.max_length
            self.dimension = int(head.dense[-1].weight.shape[0] if head.dense else config.hidden_size)

    def token_ids(self, questions: Sequence[str]) -> list[list[int]]:
        """What is read of each question: at most as many tokens as the encoder takes."""
        texts = list(questions)
        if self._head is not None:
            texts = [self._head.prompt + (text.lower() if self._head.lower_case else text) for text in texts]
        ids: list[list[int]] = self._tokenizer(texts, truncation=True, max_length=self._max_length, verbose=False)[
            "input_ids"
        ]
        return ids

    def encode(self, questions: Sequence[str]) -> NDArray[np.float32]:
        """(Q, d) float32."""
        return np.asarray(self._vectors(self.token_ids(questions)).cpu().numpy())  # (Q, d)


@dataclass(frozen=True, slots=True)
class Search:
    """The questions of one search and their vectors (Q, d); `n_docs` passages are wanted for each.

    `changes` stand in place of the manifest's parameters of the dense search. `between_steps` is called before each
    step of long work.
    """

    questions: Sequence[str]
    vectors: NDArray[np.float32]
    snapshot: IndexSnapshot
    n_docs: int
    changes: SearchChanges = ()
    allowed: Allowed = None
    between_steps: BetweenSteps = nothing

    def check_enough(self) -> None:
        """Raises InvalidRequest where the index holds fewer than n_docs passages."""
        held = len(self.snapshot)
        if self.n_docs > held:
            version = self.snapshot.info.version
            raise InvalidRequest("too_many_docs", field="n_docs", n_docs=self.n_docs, version=version, n_passages=held)


class Retriever(Protocol):
    """Finds passages, and says how well each fits."""

    reads_vectors: bool
    """False where vectors may be (Q, 0): questions need not be encoded for it."""

    def search(self, asked: Search) -> list[RetrievedPassages]:
        """The best passages of each question.

        Raises what IndexSnapshot.search raises, InvalidRequest where the index holds fewer than n_docs passages,
        RetrieverUnavailable where the snapshot lacks what is searched, and IndexCorrupt for a doc_score that is not
        finite.
        """
        ...


class DenseRetriever:
    """DPR: maximum inner product search, then the inner products again, exactly.

    What FAISS or a database returns is never a score here: an HNSW or a PQ index gives approximations, and some give
    distances. The prior is a softmax over doc_scores, so an error in them would be an error in every answer. A
    doc_score is `scale` times the inner product: cosines alone would make a flat prior.
    """

    reads_vectors = True

    def __init__(self, scale: float = 1.0) -> None:
        self._scale = scale

    def search(self, asked: Search) -> list[RetrievedPassages]:
        snapshot, parameters = asked.snapshot, dict(asked.changes)
        retrieved = []
        for found in snapshot.nearest(asked.vectors, asked.n_docs, parameters=parameters, allowed=asked.allowed):
            rows, doc_scores = tuple(found.rows.tolist()), self._scale * found.products  # (K,)
            _check_finite(snapshot, found.rows, doc_scores)
            retrieved.append(RetrievedPassages(rows, snapshot.passages(rows), tuple(doc_scores.tolist())))
        return retrieved


class Bm25Retriever:
    """BM25 in the place of DPR, its scores the logits of p(z | x): the ablation of section 4.5 and Table 6.

    Reads words: it needs no checkpoint. Where fewer than K passages hold a word of the question, the rest are the first
    of the others in the order of their rows, with a doc_score of 0. A question without any word that the index knows
    has a flat prior.
    """

    reads_vectors = False

    def search(self, asked: Search) -> list[RetrievedPassages]:
        snapshot, allowed = asked.snapshot, asked.allowed
        bm25 = snapshot.bm25()
        asked.check_enough()
        n_docs = asked.n_docs if allowed is None else min(asked.n_docs, int(np.count_nonzero(allowed)))  # K
        retrieved = []
        for rows, scores in zip(*bm25.search(asked.questions, n_docs, allowed=allowed), strict=True):  # (K,) each
            _check_finite(snapshot, rows, scores)
            passages = snapshot.passages(rows.tolist())
            retrieved.append(RetrievedPassages(tuple(rows.tolist()), passages, tuple(scores.tolist())))
        return retrieved


@dataclass(frozen=True, slots=True)
class HybridCandidates:
    """The C' rows that one question chooses from, rising, and both scores of each."""

    rows: NDArray[np.int64]  # (C',)
    products: NDArray[np.float64]  # (C',) exact inner products
    bm25: NDArray[np.float64]  # (C',)


class HybridRetriever:
    """DPR and BM25 together: a weighted sum of a passage's two scores is its doc_score.

    The candidates of a question are the best C = max(n_docs, CANDIDATES) rows of each search, or all rows of a
    smaller index. Each candidate gets both scores, whichever search found it. Of equal doc_scores the lower row comes
    first.
    """

    reads_vectors = True

    def __init__(self, weights: PriorWeights) -> None:
        self._weights = weights

    def search(self, asked: Search) -> list[RetrievedPassages]:
        found = hybrid_candidates(asked)
        return [self._best(asked, *one) for one in zip(asked.questions, found, strict=True)]

    def _best(self, asked: Search, question: str, candidates: HybridCandidates) -> RetrievedPassages:
        snapshot = asked.snapshot
        doc_scores = self._weights.score(candidates.products, candidates.bm25)  # (C',)
        _check_finite(snapshot, candidates.rows, doc_scores)
        order = np.argsort(-doc_scores, kind="stable")[: asked.n_docs]  # (K,)
        rows = tuple(candidates.rows[order].tolist())
        coverage = snapshot.bm25().coverage(question, rows)  # (K,)
        return RetrievedPassages(
            rows, snapshot.passages(rows), tuple(doc_scores[order].tolist()), tuple(coverage.tolist())
        )


def hybrid_candidates(asked: Search) -> list[HybridCandidates]:
    """What HybridRetriever weighs for each question.

    Raises what IndexSnapshot.search raises, and RetrieverUnavailable where the snapshot has no BM25.
    """
    snapshot = asked.snapshot
    bm25 = snapshot.bm25()
    near = _nearest_rows(asked)  # (Q, C)
    candidates = []
    for question, vector, found in zip(asked.questions, asked.vectors, near, strict=True):
        of_all = bm25.scores(question)  # (N,)
        rows = np.union1d(found, best_rows(of_all, _n_candidates(asked), asked.allowed))  # (C',)
        candidates.append(HybridCandidates(rows, snapshot.products(vector, rows), of_all[rows].astype(np.float64)))
    return candidates


class RerankedRetriever:
    """A cross-encoder over the candidates: the logit of (question, passage) is the passage's doc_score.

    The candidates are HybridRetriever's where the version has BM25, else the best C rows of the dense search. Of equal
    doc_scores the lower row comes first.
    """

    reads_vectors = True

    def __init__(self, reranker: Reranker) -> None:
        self._reranker = reranker

    def search(self, asked: Search) -> list[RetrievedPassages]:
        """See `Retriever`. Calls `between_steps` before each batch of pairs."""
        if asked.snapshot.info.bm25 is not None:
            found = [one.rows for one in hybrid_candidates(asked)]
        else:
            found = list(np.sort(_nearest_rows(asked), axis=1))
        return [self._best(asked, *one) for one in zip(asked.questions, found, strict=True)]

    def _best(self, asked: Search, question: str, rows: NDArray[np.int64]) -> RetrievedPassages:
        """Of the candidates `rows` (C',), rising."""
        passages = asked.snapshot.passages(rows.tolist())
        doc_scores = self._reranker.logits(question, passages, asked.between_steps)  # (C',)
        order = np.argsort(-doc_scores, kind="stable")[: asked.n_docs]  # (K,)
        best = tuple(passages[place] for place in order)
        return RetrievedPassages(tuple(rows[order].tolist()), best, tuple(doc_scores[order].tolist()))


def _check_finite(snapshot: IndexSnapshot, rows: NDArray[np.int64], doc_scores: NDArray[np.floating]) -> None:
    """Raises IndexCorrupt, which names the row: rows and doc_scores (n,). A prior of NaN would be no prior at all."""
    wrong = np.flatnonzero(~np.isfinite(doc_scores))
    if len(wrong):
        reason = f"the doc_score of row {rows[wrong[0]]} is {doc_scores[wrong[0]]}, not a finite number."
        raise IndexCorrupt(version=snapshot.info.version, reason=reason)


def _n_candidates(asked: Search) -> int:
    """C, the rows that each search proposes."""
    return min(max(asked.n_docs, CANDIDATES), len(asked.snapshot))


def _nearest_rows(asked: Search) -> NDArray[np.int64]:
    """The C rows that the dense search proposes, best first: (Q, C)."""
    asked.check_enough()
    return asked.snapshot.search(
        asked.vectors, _n_candidates(asked), parameters=dict(asked.changes), allowed=asked.allowed
    )
