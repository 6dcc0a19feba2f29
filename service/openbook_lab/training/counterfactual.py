"""Answers by kind, and answers put in the place of others.

A reader that sees only true passages can learn to remember. Where the answer is replaced by another of its kind, in
the passage and in the target alike, only reading helps.
"""

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

AnswerKind = Literal["year", "date", "number", "person", "name", "phrase"]

_MONTHS = r"(?:January|February|March|April|May|June|July|August|September|October|November|December)"
_YEAR = re.compile(r"^(?:1\d|20)\d\d$")
_DATE = re.compile(rf"\b{_MONTHS}\b.*\d|\d.*\b{_MONTHS}\b")
_NUMBER = re.compile(
    r"^(?:about |around |nearly |over |some |more than |approximately )?[£$€]?\d"
    r"|^(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|sixty|hundreds?)\b",
    re.IGNORECASE,
)
_WHO = re.compile(r"\b(?:who|whom|whose)\b|\bname of the (?:president|prime minister|king|queen)\b", re.IGNORECASE)
_SMALL_WORDS = frozenset({"of", "the", "and", "de", "la", "von", "van", "in", "for", "on", "al", "bin", "du", "&"})


def answer_kind(answer: str, question: str = "") -> AnswerKind:
    """What sort of thing the answer is, judged by its form and, for persons, by how the question asks."""
    if _YEAR.match(answer):
        return "year"
    if _DATE.search(answer):
        return "date"
    if _NUMBER.match(answer):
        return "number"
    words = [word for word in answer.split() if word.lower() not in _SMALL_WORDS]
    if words and all(word[:1].isupper() for word in words) and len(words) <= 6:
        return "person" if _WHO.search(question) else "name"
    return "phrase"


def occurrences(answer: str, text: str) -> list[int]:
    """Character offsets at which `answer` stands in `text` as whole words, in the answer's own casing or another."""
    if answer.lower() not in text.lower():
        return []
    pattern = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE)
    return [match.start() for match in pattern.finditer(text)]


def replace_everywhere(answer: str, replacement: str, text: str) -> str:
    """`text` with every whole-word occurrence of `answer` replaced."""
    pattern = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE)
    return pattern.sub(lambda _: replacement, text)


@dataclass(frozen=True, slots=True)
class AnswerPool:
    """Answers seen in the training questions, by kind, to draw others from."""

    by_kind: dict[AnswerKind, tuple[str, ...]]

    @classmethod
    def of(cls, questions_and_answers: Iterable[tuple[str, str]]) -> "AnswerPool":
        by_kind: dict[AnswerKind, dict[str, None]] = {}
        for question, answer in questions_and_answers:
            if 0 < len(answer) <= 60:
                by_kind.setdefault(answer_kind(answer, question), {})[answer] = None
        return cls({kind: tuple(answers) for kind, answers in by_kind.items()})

    def draw(self, kind: AnswerKind, *, unlike: str, random_state: random.Random) -> str:
        """Another answer of this kind; where the pool has none, `unlike` itself comes back."""
        if kind == "year":
            return str(random_state.randint(1400, 2024))
        if kind == "number" and unlike.isdigit() and random_state.random() < 0.5:
            return str(random_state.randint(2, 10 ** min(len(unlike) + 1, 7)))
        if kind == "person" and random_state.random() < 0.5:
            return self._invented_person(random_state) or unlike
        pool = self.by_kind.get(kind, ())
        for _ in range(8):
            if not pool:
                break
            drawn = random_state.choice(pool)
            # Long for short would change how the passage reads more than what it says.
            if drawn.lower() != unlike.lower() and abs(len(drawn.split()) - len(unlike.split())) <= 2:
                return drawn
        return unlike

    def _invented_person(self, random_state: random.Random) -> str | None:
        full = [name for name in random_state.choices(self.by_kind.get("person", ("",)), k=12) if " " in name]
        if len(full) < 2:
            return None
        return f"{full[0].split()[0]} {full[1].split()[-1]}"
