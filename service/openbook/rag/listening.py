"""Hearing of an answer while it is made: its passages, then each token as soon as no later step changes it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import starmap
from types import MappingProxyType

from openbook.entities import AnswerToken, Hypothesis, Retrieval

Tell = Callable[[Retrieval | AnswerToken], None]


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears of one answer. `tell` runs in the thread that computes, between two steps: it must return at once.

    An answer whose `no_answer` is above `max_no_answer` will be withheld, so the listener hears none of its tokens.
    """

    tell: Tell
    max_no_answer: float | None = None

    def at_most(self, most: float) -> float:
        """The smaller of `max_no_answer`, if there is one, and `most`."""
        return most if self.max_no_answer is None else min(most, self.max_no_answer)


Listeners = Mapping[int, Listener]
"""By the number of the question in its batch; a question without a listener costs nothing."""

Certain = Callable[[Hypothesis], None]
"""Called with the beginning of an answer that is certain, each time from the first token; at last with all of it."""

NO_LISTENERS: Listeners = MappingProxyType({})
NOBODY: Mapping[int, Certain] = MappingProxyType({})


class ToldTokens:
    """Tells each token once. `tokens` are those that were told, so that an answer can repeat them to the last digit."""

    def __init__(self, token_texts: Callable[[Hypothesis], Sequence[str]], tell: Tell) -> None:
        self._token_texts = token_texts
        self._tell = tell
        self.tokens: list[AnswerToken] = []

    def __call__(self, certain: Hypothesis) -> None:
        texts = self._token_texts(certain)
        both = zip(texts, certain.token_log_probs, certain.posterior, strict=True)
        for token in list(starmap(AnswerToken, both))[len(self.tokens) :]:
            self.tokens.append(token)
            self._tell(token)
