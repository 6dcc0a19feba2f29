"""When to say "I do not know": a threshold on `no_answer`, and what it costs (El-Yaniv and Wiener 2010).

Questions that a book answers and questions that it does not answer count half each, however many there are of either.
Of those that it does not answer, every kind counts alike.
Coverage is the share that is answered, risk the share of wrong answers among those given. An answer to a question that
the book does not answer is wrong.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from typing import Generic, TypeVar

import numpy as np

from openbook.rag.no_answer import NoAnswerWeights, log_odds
from openbook_lab.evaluation.statistics import auc

T = TypeVar("T")

DIGITS = 4
PENALTY = 1e-3


@dataclass(frozen=True, slots=True)
class Signs:
    """What tells of a question whether its passages answer: p(empty answer | x), how much of it they cover, and the
    smallest p(empty answer | x, z)."""

    empty: float
    coverage: float
    least: float

    def no_answer(self, weights: NoAnswerWeights | None) -> float:
        return self.empty if weights is None else weights.probability(self.empty, self.coverage, self.least)


@dataclass(frozen=True, slots=True)
class Thrice(Generic[T]):
    """Questions that a book answers; the same after every article that holds an answer is taken from it, so that it may
    know nothing of the subject; and after every passage that does, so that it knows all else. `near_misses` are
    questions of their own, which people asked of the book and it does not answer."""

    answerable: Sequence[T]
    no_article: Sequence[T]
    no_passage: Sequence[T]
    near_misses: Sequence[T] = ()

    @property
    def kinds(self) -> list[Sequence[T]]:
        """Those that the book does not answer, by why it does not; the kinds that are there."""
        return [kind for kind in (self.no_article, self.no_passage, self.near_misses) if kind]


class SignsThrice(Thrice[Signs]):
    """The signs of each question."""


@dataclass(frozen=True, slots=True)
class Abstention:
    """What comes of answering where `no_answer` is at most `threshold`. All are shares in [0, 1].

    `decided` is the share of right decisions: an answer where the book has one, none where it has none. Whether the
    answer is right does not count: else a reader that is mostly wrong would do best to say nothing.
    """

    threshold: float
    coverage: float
    risk: float
    decided: float


@dataclass(frozen=True, slots=True)
class AskedThrice(Thrice[float]):
    """What comes of asking each question: its `no_answer`, and whether the answer is `right` where the book has one."""

    right: Sequence[bool] = ()

    @property
    def unanswerable(self) -> list[float]:
        return [one for kind in self.kinds for one in kind]

    @property
    def auc(self) -> float:
        """The chance that `no_answer` is larger where the book has no answer."""
        return auc(self.unanswerable, self.answerable)

    def at(self, threshold: float) -> Abstention:
        """What comes of this threshold."""
        answered = decided = 0.0
        kinds = self.kinds
        for part, share in ((self.answerable, 0.5), *((kind, 0.5 / len(kinds)) for kind in kinds)):
            given = np.array(part) <= threshold  # (N,)
            answered += share * float(given.mean())
            decided += share * float((given == (part is self.answerable)).mean())
        answered_right = 0.5 * float(((np.array(self.answerable) <= threshold) & np.array(self.right)).mean())
        risk = 1 - answered_right / answered if answered else 0.0
        return Abstention(threshold, answered, risk, decided)

    def curve(self) -> list[Abstention]:
        """From no answer at all to all of them: a point for each set of answered questions."""
        values = np.unique([*self.answerable, *self.unanswerable]).tolist()
        return [self.at(threshold) for threshold in (0.0, *starmap(_between, pairwise(values)), 1.0)]

    def best(self) -> Abstention:
        """The one with the most right decisions, of equals the strictest."""
        return max(self.curve(), key=lambda point: point.decided)


def fit_no_answer(books: Sequence[SignsThrice], *, newton_steps: int = 25) -> NoAnswerWeights:
    """Logistic regression of what the book lacks on the signs; every book counts alike, both halves of each, and of
    what the book does not answer every kind.

    The signs are standardised first, and PENALTY times the squared weights is added to the mean loss: without it a few
    questions that can be told apart without a mistake would have infinite weights.
    """
    parts = [(one.answerable, 0.0, 1.0) for one in books]
    parts += [(kind, 1.0, 1 / len(one.kinds)) for one in books for kind in one.kinds]
    signs = [sign for part, _, _ in parts for sign in part]
    rows = np.array([[log_odds(one.empty), one.coverage, log_odds(one.least)] for one in signs])  # (N, 3)
    lacking = np.array([lacks for part, lacks, _ in parts for _ in part])  # (N,)
    counts = np.array([share / len(part) for part, _, share in parts for _ in part])  # (N,)
    counts /= counts.sum()
    mean, spread = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)  # (3,)
    features = np.column_stack([np.ones(len(rows)), (rows - mean) / spread])  # (N, 4)
    penalty = 2 * PENALTY * np.array([0.0, 1.0, 1.0, 1.0])  # (4,): the bias costs nothing
    weights = np.zeros(4)
    for _ in range(newton_steps):
        probability = (1 + np.tanh(features @ weights / 2)) / 2  # (N,)
        slope = features.T @ (counts * (probability - lacking)) + penalty * weights  # (4,)
        curvature = (features.T * (counts * probability * (1 - probability))) @ features + np.diag(penalty)  # (4, 4)
        weights = weights - np.linalg.solve(curvature + 1e-12 * np.eye(4), slope)
    empty, coverage, least = (weights[1:] / spread).tolist()
    bias = float(weights[0] - weights[1:] @ (mean / spread))
    return NoAnswerWeights(*(float(f"{one:.{DIGITS}g}") for one in (bias, empty, coverage, least)))


def _between(below: float, above: float) -> float:
    """A threshold between two values, with few digits where they leave room."""
    middle = (below + above) / 2
    rounded = float(f"{middle:.{DIGITS}g}")
    return rounded if below <= rounded < above else middle
