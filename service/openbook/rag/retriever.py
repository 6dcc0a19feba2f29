"""question -> the K passages with the largest inner products, and those inner products."""

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

    What FAISS returns is never a score here: an HNSW or a PQ index answers with approximations, and some with
    distances. The prior is a softmax over doc_scores, so an error in them would be an error in every answer.
    """

    def __init__(self, encoder: QuestionEncoder) -> None:
        self._encoder = encoder

    def retrieve(self, questions: Sequence[str], snapshot: IndexSnapshot, n_docs: int) -> list[RetrievedPassages]:
        """Raises TooManyDocs where the index holds fewer than n_docs passages."""
        return self.search(self._encoder.encode(questions), snapshot, n_docs)

    def search(
        self, vectors: NDArray[np.float32], snapshot: IndexSnapshot, n_docs: int, changes: SearchChanges = ()
    ) -> list[RetrievedPassages]:
        """The same from question vectors (Q, d). `changes`: parameters in place of the manifest's; see
        IndexSnapshot.search, which also says what it raises for them."""
        if n_docs > len(snapshot):
            raise TooManyDocs(n_docs=n_docs, version=snapshot.info.version, n_passages=len(snapshot))
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
