"""question -> the K passages with the largest scores, and those scores: inner products, or BM25."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from openbook.entities import RetrievedPassages, SearchChanges
from openbook.errors import TooManyDocs
from openbook.rag.checkpoint import Checkpoint
from openbook.storage.snapshot import IndexSnapshot


class QuestionEncoder:
    """BERT over the question, as DPR has it (section 2.2): texts -> vectors whose inner product with a passage's
    vector is its doc_score."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._model = checkpoint.question_encoder
        self._tokenizer = checkpoint.question_tokenizer
        self._max_length = int(self._model.config.max_position_embeddings)
        self.dimension = int(self._model.config.projection_dim or self._model.config.hidden_size)

    @torch.inference_mode()
    def encode(self, questions: Sequence[str]) -> NDArray[np.float32]:
        """(Q, d) float32."""
        batch = self._tokenizer(
            list(questions), padding=True, truncation=True, max_length=self._max_length, return_tensors="pt"
        ).to(self._model.device)
        vectors = self._model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])[0]  # (Q, d)
        return np.asarray(vectors.float().cpu().numpy())


class DenseRetriever:
    """DPR: maximum inner product search, then the inner products again, exactly.

    What FAISS returns is never a score here: an HNSW or a PQ index gives approximations, and some give distances. The
    prior is a softmax over doc_scores, so an error in them would be an error in every answer.
    """

    def __init__(self, encoder: QuestionEncoder) -> None:
        self._encoder = encoder

    def retrieve(self, questions: Sequence[str], snapshot: IndexSnapshot, n_docs: int) -> list[RetrievedPassages]:
        """Raises TooManyDocs where the index holds fewer than n_docs passages."""
        return self.search(self._encoder.encode(questions), snapshot, n_docs)

    def search(
        self, vectors: NDArray[np.float32], snapshot: IndexSnapshot, n_docs: int, changes: SearchChanges = ()
    ) -> list[RetrievedPassages]:
        """The same from question vectors (Q, d), with `changes` in place of the manifest's parameters.

        Raises what IndexSnapshot.search raises.
        """
        found = snapshot.search(vectors, n_docs, parameters=dict(changes))  # (Q, K)
        return [self._exact(vector, rows, snapshot) for vector, rows in zip(vectors, found, strict=True)]

    def _exact(
        self, vector: NDArray[np.float32], rows: NDArray[np.int64], snapshot: IndexSnapshot
    ) -> RetrievedPassages:
        stored = snapshot.vectors(rows.tolist())  # (K, d)
        # float64 while summing: the order of two near passages must not hang on the order of additions
        doc_scores = stored.astype(np.float64) @ vector.astype(np.float64)  # (K,)
        order = np.argsort(-doc_scores, kind="stable")  # (K,)
        best = tuple(int(row) for row in rows[order])
        return RetrievedPassages(
            rows=best, passages=snapshot.passages(best), doc_scores=tuple(doc_scores[order].tolist())
        )


class Bm25Retriever:
    """BM25 in the place of DPR, its scores the logits of p(z | x): the ablation of section 4.5 and Table 6.

    Reads words: it needs no checkpoint. Where fewer than K passages hold a word of the question, the rest are the first
    of the others in the order of their rows, with a doc_score of 0. A question without any word that the index knows
    has a flat prior.
    """

    def retrieve(self, questions: Sequence[str], snapshot: IndexSnapshot, n_docs: int) -> list[RetrievedPassages]:
        """Raises RetrieverUnavailable where the snapshot has no files for it, TooManyDocs as DenseRetriever does."""
        bm25 = snapshot.bm25()
        if n_docs > len(snapshot):
            raise TooManyDocs(n_docs=n_docs, version=snapshot.info.version, n_passages=len(snapshot))
        found = zip(*bm25.search(questions, n_docs), strict=True)  # Q of (K,) and (K,)
        return [
            RetrievedPassages(tuple(rows.tolist()), snapshot.passages(rows.tolist()), tuple(scores.tolist()))
            for rows, scores in found
        ]
