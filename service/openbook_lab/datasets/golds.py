"""What counts as a right answer: several texts, or regular expressions (CuratedTrec), which match answers."""

import unicodedata
from dataclasses import dataclass
from functools import cached_property

import regex

from openbook.errors import SourceInvalid
from openbook_lab.datasets.qa_metrics import exact_match, f1, has_answer

# An honest pattern takes microseconds a passage; one that backtracks without end must not stop a run for hours.
PATTERN_SECONDS = 1.0
_ESCAPED = regex.compile(r"\\(.)", regex.DOTALL)


@dataclass(frozen=True)
class AnswerPattern:
    """A regular expression that right answers match, in any case. `place` says where it stands, for whoever mends it.

    Raises SourceInvalid that names the pattern: made, where it is none; used, where it takes longer than
    `PATTERN_SECONDS` on one text.
    """

    pattern: str
    place: str

    def __post_init__(self) -> None:
        try:
            _ = self._compiled
        except regex.error as error:
            raise SourceInvalid(
                source=self.place, reason=f"{self.pattern!r} is no regular expression ({error})"
            ) from error

    def stands_in(self, text: str) -> bool:
        """Whether it matches anywhere in `text`, as DPR counts a hit of retrieval."""
        try:
            return self._compiled.search(_decomposed(text), timeout=PATTERN_SECONDS) is not None
        except TimeoutError as error:
            raise self._slow() from error

    def answers(self, prediction: str) -> bool:
        """Whether `prediction` begins with a match, as DrQA counts a right answer (Chen et al. 2017)."""
        try:
            return self._compiled.match(_decomposed(prediction.strip()), timeout=PATTERN_SECONDS) is not None
        except TimeoutError as error:
            raise self._slow() from error

    @cached_property
    def _compiled(self) -> "regex.Pattern[str]":
        return regex.compile(
            _decomposed(_ESCAPED.sub(_unescaped, self.pattern)), regex.IGNORECASE | regex.MULTILINE | regex.VERSION0
        )

    def _slow(self) -> SourceInvalid:
        return SourceInvalid(
            source=self.place,
            reason=f"the pattern {self.pattern!r} takes longer than {PATTERN_SECONDS:g} s on one text",
        )


@dataclass(frozen=True, slots=True)
class Golds:
    """The right answers to one question."""

    texts: tuple[str, ...] = ()
    patterns: tuple[AnswerPattern, ...] = ()

    def exact_match(self, prediction: str) -> bool:
        """Whether the prediction is one of the texts, both normalised, or begins with a match of a pattern."""
        return exact_match(prediction, self.texts) or any(one.answers(prediction) for one in self.patterns)

    def f1(self, prediction: str) -> float | None:
        """The best over the texts; None where patterns alone are known, which have no words to count."""
        return f1(prediction, self.texts) if self.texts else None

    def stand_in(self, text: str) -> bool:
        """Whether one of them stands in `text` (DPR's has_answer, of texts and of patterns)."""
        return has_answer(text, self.texts) or any(one.stands_in(text) for one in self.patterns)


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def _unescaped(escaped: "regex.Match[str]") -> str:
    # CuratedTrec has an escaped letter with an accent: taken apart, the backslash would be the bare letter's
    return str(escaped[0] if escaped[1].isascii() else escaped[1])
