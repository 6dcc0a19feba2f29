"""What each way of retrieving finds for many questions, and which passages a question is then read with."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import PriorWeights, RetrievedPassages
from openbook.errors import NotCalibrated, SettingInvalid
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.retriever import Bm25Retriever, DenseRetriever, HybridRetriever, QuestionEncoder
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.golds import Golds
from openbook_lab.datasets.qa_metrics import has_answer
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.book import Book, frozen_vectors
from openbook_lab.evaluation.options import CLOSED_BOOK, Finding
from openbook_lab.evaluation.prior_fit import BM25_ALONE, DENSE_ALONE
from openbook_lab.evaluation.reader import OpenQuestion

# Passages found for each question.
CANDIDATES = 50
QUESTIONS_A_BATCH = 64


@dataclass(frozen=True, slots=True)
class RetrievalFigures:
    """The best `CANDIDATES` passages of each question, or all where an index has fewer; of a closed book none.

    `vectors` are what a dense retriever searched with; the others have none.
    """

    name: str
    checkpoint: Checkpoint
    vectors: NDArray[np.float32]  # (Q, d)
    found: tuple[RetrievedPassages, ...]
    retriever: Finding = "dense"

    def held(self, golds: Sequence[Golds]) -> list[list[bool]]:
        """For each passage found for each question, whether it holds an answer."""
        return [
            [of_question.stand_in(passage.text) for passage in retrieved.passages]
            for retrieved, of_question in zip(self.found, golds, strict=True)
        ]


def retrieve(
    checkpoint: Checkpoint,
    texts: Sequence[str],
    snapshot: IndexSnapshot | None,
    retriever: Finding = "dense",
    encoder_folder: Path | None = None,
) -> RetrievalFigures:
    """What this way finds for the questions `texts`, to be read by the checkpoint's generator.

    "dense" searches with the checkpoint's question encoder; "frozen" with the vectors of the passage encoder in
    `encoder_folder` (None: the packaged one). "bm25" is section 4.5 but for the generator: the paper trains one on
    what BM25 finds, this one was trained on what its own retriever found. "hybrid" weighs both as the checkpoint says.
    "closed book" finds nothing.

    Raises SettingInvalid without a `snapshot` to search, NotCalibrated for "hybrid" without weights.
    """
    vectors = np.empty((len(texts), 0), dtype=np.float32)  # (Q, 0)
    if retriever == CLOSED_BOOK:
        nothing = RetrievedPassages((), (), ())
        return RetrievalFigures(
            f"{checkpoint.name}, {retriever}", checkpoint, vectors, (nothing,) * len(texts), retriever
        )
    if snapshot is None:
        raise SettingInvalid(setting="retriever", reason=f"{retriever} needs an index to search")
    candidates = min(CANDIDATES, len(snapshot))
    if retriever == "bm25":
        found = Bm25Retriever().search(texts, vectors, snapshot, candidates)
        return RetrievalFigures(f"{checkpoint.name}, BM25", checkpoint, vectors, tuple(found), retriever)
    encoder = QuestionEncoder(checkpoint)
    batches = [texts[first : first + QUESTIONS_A_BATCH] for first in range(0, len(texts), QUESTIONS_A_BATCH)]
    vectors = np.concatenate([encoder.encode(batch) for batch in batches])  # (Q, d)
    if retriever == "hybrid":
        found = HybridRetriever(_weights(checkpoint)).search(texts, vectors, snapshot, candidates)
        return RetrievalFigures(f"{checkpoint.name}, hybrid", checkpoint, vectors, tuple(found), retriever)
    if retriever == "frozen":
        vectors = frozen_vectors(texts, vectors, encoder_folder)
    found = DenseRetriever(checkpoint.facts.prior_scale).search(texts, vectors, snapshot, candidates)
    name = checkpoint.name if retriever == "dense" else f"{checkpoint.name}, frozen"
    return RetrievalFigures(name, checkpoint, vectors, tuple(found), retriever)


def _weights(checkpoint: Checkpoint) -> PriorWeights:
    if checkpoint.facts.prior is None:
        raise NotCalibrated(checkpoint=checkpoint.name, asked="retriever 'hybrid'", fact="prior")
    return checkpoint.facts.prior


class PassageChoices:
    """Which passages each question is read with. A question without a gold piece is None in the gold choices."""

    def __init__(
        self, retrieval: RetrievalFigures, questions: Sequence[Question], book: Book, snapshot: IndexSnapshot
    ) -> None:
        self._retrieval = retrieval
        self._questions = questions
        self._book = book
        self._snapshot = snapshot
        self._gold = [book.gold_rows(question) for question in questions]
        if retrieval.retriever == "hybrid":
            self._weights = _weights(retrieval.checkpoint)
        else:
            self._weights = BM25_ALONE if retrieval.retriever == "bm25" else DENSE_ALONE

    def retrieved(self, n_docs: int) -> list[OpenQuestion | None]:
        """The best `n_docs`."""
        return [self._read(number, found.rows[:n_docs]) for number, found in enumerate(self._retrieval.found)]

    def gold_alone(self) -> list[OpenQuestion | None]:
        """The piece of the question's own paragraph that holds an answer."""
        return [self._read(number, gold[:1]) for number, gold in enumerate(self._gold)]

    def gold_among(self, n_docs: int) -> list[OpenQuestion | None]:
        """The best `n_docs`; where the gold piece is not among them, it replaces the last."""
        chosen = []
        for number, (found, gold) in enumerate(zip(self._retrieval.found, self._gold, strict=True)):
            best = found.rows[:n_docs]
            if gold and not set(best) & set(gold):
                best = (*best[: n_docs - 1], gold[0])
            chosen.append(self._read(number, best if gold else ()))
        return chosen

    def gold_and_wrong(self, n_docs: int) -> list[OpenQuestion | None]:
        """The gold piece with the nearest passages that hold no answer."""
        chosen = []
        for number, (found, gold) in enumerate(zip(self._retrieval.found, self._gold, strict=True)):
            wrong = [
                row
                for row, passage in zip(found.rows, found.passages, strict=True)
                if row not in gold[:1] and not has_answer(passage.text, self._questions[number].answers)
            ]
            chosen.append(self._read(number, [gold[0], *wrong[: n_docs - 1]] if gold else ()))
        return chosen

    def _read(self, number: int, rows: Sequence[int]) -> OpenQuestion | None:
        if not rows:
            return None
        text = self._questions[number].text
        # a version without BM25 has no scores, and one whose vectors count for nothing need not be read
        products, bm25 = np.zeros(len(rows)), np.zeros(len(rows))  # (K,) each
        if self._weights.bm25:
            bm25 = self._snapshot.bm25().scores(text)[list(rows)].astype(np.float64)
        if self._weights.dense:
            vectors = self._snapshot.vectors(rows).astype(np.float64)  # (K, d)
            products = vectors @ self._retrieval.vectors[number].astype(np.float64)
        doc_scores = self._weights.score(products, bm25)  # (K,)
        passages = tuple(self._book.passages[row] for row in rows)
        return OpenQuestion(text, passages, tuple(doc_scores.tolist()))
