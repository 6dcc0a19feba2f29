"""What joint training searches, and what its questions find there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from openbook.entities import Passage
from openbook_lab.training.counterfactual import occurrences
from openbook_lab.training.examples import NO_ANSWER


@dataclass(frozen=True, slots=True)
class Library:
    """Passages that are searched together, with their fixed vectors."""

    passages: Sequence[Passage]
    vectors: Tensor  # (N, d)

    def to(self, device: torch.device) -> "Library":
        """The same with its vectors on another device."""
        return Library(self.passages, self.vectors.to(device))


@dataclass(frozen=True, slots=True)
class LibraryQuestion:
    """A question to one library. Any of `answers` is right; the first that was found is the one to be generated.

    `rows` are passages known to hold it, where they are known. Without `answers` the library does not answer it. What
    is `written` need stand in no passage: where none of the answers was found, the first is generated.
    """

    text: str
    answers: tuple[str, ...]
    library: str
    kind: str = ""
    rows: tuple[int, ...] = ()
    written: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """A question with the passages that it found."""

    question: LibraryQuestion
    rows: list[int]  # K


def retrieve(
    questions: Sequence[LibraryQuestion], vectors: Tensor, libraries: Mapping[str, Library], n_docs: int
) -> list[Found]:
    """The passages with the largest inner products, best first; `vectors` are the questions', (B, d).

    Where a question's passage is known and was missed, it takes the last place: what retrieval cannot do yet is then
    learnt, too.
    """
    found = []
    for question, vector in zip(questions, vectors, strict=True):
        scores = libraries[question.library].vectors @ vector  # (N,)
        rows = scores.topk(n_docs).indices.tolist()
        if question.rows and not set(question.rows) & set(rows):
            known = torch.tensor(question.rows)  # (R,)
            rows[-1] = int(known[scores[known.to(scores.device)].argmax().cpu()])
        found.append(Found(question, rows))
    return found


def found_answer(found: Found, libraries: Mapping[str, Library]) -> str | None:
    """What is to be generated: the first of the answers that stands in a found passage.

    The empty answer where the library has none; None where an answer was not found, and there is nothing to learn.
    """
    if not found.question.answers:
        return NO_ANSWER
    answers = found.question.answers
    texts = [libraries[found.question.library].passages[row].text for row in found.rows]
    there = (answer for answer in answers if any(occurrences(answer, text) for text in texts))
    return next(there, answers[0] if found.question.written else None)
