"""Who is compared over one book: a checkpoint with its own question encoder, with the frozen one, or with BM25."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Passage, RetrievedPassages, RetrieverKind
from openbook.rag.checkpoint import Checkpoint
from openbook.rag.retriever import Bm25Retriever, DenseRetriever, QuestionEncoder
from openbook.storage.snapshot import IndexSnapshot
from openbook_lab.datasets.qa_metrics import has_answer
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.book import Book, frozen_vectors
from openbook_lab.evaluation.reader import OpenQuestion

# How far down wrong passages are looked for.
CANDIDATES = 50
QUESTIONS_A_BATCH = 64


@dataclass(frozen=True, slots=True)
class Contestant:
    """A checkpoint and what its retrieval found for every question: the best `CANDIDATES` passages of the book.

    `vectors` are what a dense retriever searched with; BM25 has none.
    """

    name: str
    checkpoint: Checkpoint
    vectors: NDArray[np.float32]  # (Q, d)
    found: tuple[RetrievedPassages, ...]
    retriever: RetrieverKind = "dense"


def retrieve_learned(
    name: str, checkpoint: Checkpoint, questions: Sequence[Question], snapshot: IndexSnapshot
) -> Contestant:
    """With the checkpoint's question encoder."""
    encoder = QuestionEncoder(checkpoint)
    texts = [question.text for question in questions]
    vectors = np.concatenate(
        [encoder.encode(texts[first : first + QUESTIONS_A_BATCH]) for first in range(0, len(texts), QUESTIONS_A_BATCH)]
    )  # (Q, d)
    return _search(name, checkpoint, vectors, snapshot)


def retrieve_frozen(
    learned: Contestant, questions: Sequence[Question], snapshot: IndexSnapshot, encoder_folder: Path | None
) -> Contestant:
    """The same checkpoint with the passage encoder's vectors of the questions in place of its own."""
    vectors = frozen_vectors([question.text for question in questions], learned.vectors, encoder_folder)  # (Q, d)
    return _search(f"{learned.name}, frozen", learned.checkpoint, vectors, snapshot)


def retrieve_bm25(learned: Contestant, questions: Sequence[Question], snapshot: IndexSnapshot) -> Contestant:
    """The same checkpoint with BM25 in the place of its question encoder, as in section 4.5 but for the generator:
    the paper trains one on what BM25 finds, this one was trained on what its own retriever found."""
    found = Bm25Retriever().retrieve([question.text for question in questions], snapshot, _candidates(snapshot))
    nothing = np.empty((len(questions), 0), dtype=np.float32)  # (Q, 0)
    return Contestant(f"{learned.name}, BM25", learned.checkpoint, nothing, tuple(found), "bm25")


def _candidates(snapshot: IndexSnapshot) -> int:
    return min(CANDIDATES, len(snapshot))


def _search(name: str, checkpoint: Checkpoint, vectors: NDArray[np.float32], snapshot: IndexSnapshot) -> Contestant:
    found = DenseRetriever(QuestionEncoder(checkpoint)).search(vectors, snapshot, _candidates(snapshot))
    return Contestant(name, checkpoint, vectors, tuple(found))


class PassageChoices:
    """Which passages a question is read with. A question without a gold piece has none of the gold choices."""

    def __init__(
        self, contestant: Contestant, questions: Sequence[Question], book: Book, snapshot: IndexSnapshot
    ) -> None:
        self._contestant = contestant
        self._questions = questions
        self._book = book
        self._snapshot = snapshot

    def retrieved(self, n_docs: int) -> Callable[[int], OpenQuestion | None]:
        """The best `n_docs`."""
        return lambda number: self._of(number, self._contestant.found[number].rows[:n_docs])

    def gold_alone(self) -> Callable[[int], OpenQuestion | None]:
        """The piece of its own paragraph that answers."""
        return lambda number: self._with_gold(number, lambda gold: gold[:1])

    def gold_among(self, n_docs: int) -> Callable[[int], OpenQuestion | None]:
        """The best `n_docs`, the last of them giving way to the gold piece where that is not among them."""

        def rows(number: int, gold: Sequence[int]) -> Sequence[int]:
            best = self._contestant.found[number].rows[:n_docs]
            return best if set(best) & set(gold) else [*best[: n_docs - 1], gold[0]]

        return lambda number: self._with_gold(number, lambda gold: rows(number, gold))

    def gold_and_wrong(self, n_docs: int) -> Callable[[int], OpenQuestion | None]:
        """The gold piece with the nearest passages that hold no answer."""

        def rows(number: int, gold: Sequence[int]) -> Sequence[int]:
            found, answers = self._contestant.found[number], self._questions[number].answers
            wrong = [
                row
                for row, passage in zip(found.rows, found.passages, strict=True)
                if row != gold[0] and not has_answer(passage.text, answers)
            ]
            return [gold[0], *wrong[: n_docs - 1]]

        return lambda number: self._with_gold(number, lambda gold: rows(number, gold))

    def _with_gold(self, number: int, rows: Callable[[Sequence[int]], Sequence[int]]) -> OpenQuestion | None:
        gold = self._book.gold_rows(self._questions[number])
        return self._of(number, rows(gold)) if gold else None

    def _of(self, number: int, rows: Sequence[int]) -> OpenQuestion:
        doc_scores = self._doc_scores(number, rows)  # (K,)
        passages: tuple[Passage, ...] = tuple(self._book.passages[row] for row in rows)
        return OpenQuestion(self._questions[number].text, passages, tuple(doc_scores.tolist()))

    def _doc_scores(self, number: int, rows: Sequence[int]) -> NDArray[np.float64]:
        if self._contestant.retriever == "bm25":
            of_all = self._snapshot.bm25().scores(self._questions[number].text)  # (N,)
            return of_all[list(rows)].astype(np.float64)
        vectors = self._snapshot.vectors(rows).astype(np.float64)  # (K, d)
        return np.asarray(vectors @ self._contestant.vectors[number].astype(np.float64))
