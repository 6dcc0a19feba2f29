"""Right answers: several texts, or regular expressions that answers match (CuratedTrec)."""

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import regex

from openbook.errors import SourceInvalid
from openbook_lab.datasets.qa_metrics import exact_match, f1, has_answer

_ESCAPED = regex.compile(r"\\(.)", regex.DOTALL)


@dataclass(frozen=True)
class AnswerPattern:
    """A regular expression that right answers match, in any case. `place` says where it stands in its file.

    Raises SourceInvalid with pattern and place: when made, if it is no regular expression; when used, if it takes
    longer than `seconds` on one text: one that backtracks without end must not stop a run for hours.
    """

    pattern: str
    place: str
    seconds: float = 1.0

    def __post_init__(self) -> None:
        try:
            _ = self._compiled
        except regex.error as error:
            raise SourceInvalid(
                source=self.place, reason=f"{self.pattern!r} is no regular expression ({error})"
            ) from error

    def stands_in(self, text: str) -> bool:
        """Whether it matches anywhere in `text`, as DPR counts a hit of retrieval."""
        return self._found(self._compiled.search, text)

    def answers(self, prediction: str) -> bool:
        """Whether `prediction` begins with a match, as DrQA counts a right answer (Chen et al. 2017)."""
        return self._found(self._compiled.match, prediction.strip())

    @cached_property
    def _compiled(self) -> "regex.Pattern[str]":
        # CuratedTrec escapes letters with an accent: decomposed, the backslash would apply to the bare letter
        pattern = _ESCAPED.sub(lambda escaped: str(escaped[0] if escaped[1].isascii() else escaped[1]), self.pattern)
        return regex.compile(_decomposed(pattern), regex.IGNORECASE | regex.MULTILINE | regex.VERSION0)

    def _found(self, look: Callable[..., object], text: str) -> bool:
        try:
            return look(_decomposed(text), timeout=self.seconds) is not None
        except TimeoutError as error:
            raise SourceInvalid(
                source=self.place,
                reason=f"the pattern {self.pattern!r} takes longer than {self.seconds:g} s on one text",
            ) from error


@dataclass(frozen=True, slots=True)
class Golds:
    """The right answers to one question."""

    texts: tuple[str, ...] = ()
    patterns: tuple[AnswerPattern, ...] = ()

    def exact_match(self, prediction: str) -> bool:
        """Whether the prediction is one of the texts, both normalised, or matches a pattern from its beginning."""
        return exact_match(prediction, self.texts) or any(one.answers(prediction) for one in self.patterns)

    def f1(self, prediction: str) -> float | None:
        """The best F1 over the texts; None with patterns alone, which have no words to count."""
        return f1(prediction, self.texts) if self.texts else None

    def stand_in(self, text: str) -> bool:
        """Whether `text` holds one of them: DPR's has_answer, for texts and patterns."""
        return has_answer(text, self.texts) or any(one.stands_in(text) for one in self.patterns)


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)
