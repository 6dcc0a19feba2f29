"""One question asked of several versions: which of them give the same answer."""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from openbook.entities import Answer

# Signs that carry meaning in an answer (-, %, $) are not among them.
EDGES = ".,;:!?\"'()[]{}`\u2018\u2019\u201c\u201d\u2026"
ARTICLES = ("a", "an", "the")


@dataclass(frozen=True, slots=True)
class AnswerGroup:
    """Versions that give the same answer, and that answer as the first of them words it; None: they abstain."""

    answer: str | None
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answers in the order in which the versions were named; `groups` in the order of their first version."""

    question: str
    answers: tuple[Answer, ...]
    groups: tuple[AnswerGroup, ...]

    @property
    def agree(self) -> bool:
        return len(self.groups) == 1

    @classmethod
    def of(cls, question: str, answers: Sequence[Answer]) -> "Comparison":
        """Group by the best answer's text, normalised."""
        groups: dict[str | None, list[Answer]] = {}
        for answer in answers:
            groups.setdefault(None if answer.text is None else normalise(answer.text), []).append(answer)
        return cls(
            question,
            tuple(answers),
            tuple(
                AnswerGroup(alike[0].text, tuple(answer.source.index.version for answer in alike))
                for alike in groups.values()
            ),
        )


def normalise(text: str) -> str:
    """`text` without case, articles, punctuation at the edges of words, and spaces: none of them changes a fact."""
    stripped = (word.strip(EDGES) for word in unicodedata.normalize("NFKC", text).casefold().split())
    words = [word for word in stripped if word]
    return " ".join([word for word in words if word not in ARTICLES] or words)
