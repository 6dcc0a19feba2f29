"""When to say "I do not know": a threshold on p(empty answer | x), and what it costs (El-Yaniv and Wiener 2010).

Questions that a book answers and questions that it does not answer count half each, however many there are of either.
Coverage is the share that is answered, risk the share of wrong answers among those given. An answer to a question that
the book does not answer is wrong.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, starmap
from pathlib import Path
from typing import Any

import numpy as np

from openbook_lab.evaluation.statistics import auc

DIGITS = 4


@dataclass(frozen=True, slots=True)
class Undecided:
    """p(empty answer | x) of a question, and whether the answer that would be given is right."""

    no_answer: float
    right: bool


@dataclass(frozen=True, slots=True)
class Abstention:
    """What comes of answering where p(empty answer | x) is at most `threshold`. All are shares in [0, 1].

    `decided` is the share of right decisions: an answer where the book has one, none where it has none. Whether the
    answer is right does not count: else a reader that is mostly wrong would do best to say nothing.
    """

    threshold: float
    coverage: float
    risk: float
    decided: float


@dataclass(frozen=True, slots=True)
class AskedTwice:
    """Questions as a book answers them, and the same after all that answers them is taken from the book."""

    answerable: Sequence[Undecided]
    unanswerable: Sequence[Undecided]

    @property
    def auc(self) -> float:
        """The chance that p(empty answer | x) is larger where the book has no answer."""
        return auc([one.no_answer for one in self.unanswerable], [one.no_answer for one in self.answerable])

    def at(self, threshold: float) -> Abstention:
        """What comes of this threshold."""
        answered_right = answered = decided = 0.0
        for half in (self.answerable, self.unanswerable):
            given = np.array([one.no_answer <= threshold for one in half])  # (N,)
            right = np.array([one.right for one in half])  # (N,)
            answered += float(given.mean()) / 2
            answered_right += float((given & right).mean()) / 2
            decided += float((given == (half is self.answerable)).mean()) / 2
        risk = 1 - answered_right / answered if answered else 0.0
        return Abstention(threshold, answered, risk, decided)

    def curve(self) -> list[Abstention]:
        """From no answer at all to all of them: a point for each set of answered questions."""
        values = np.unique([one.no_answer for one in (*self.answerable, *self.unanswerable)]).tolist()
        return [self.at(threshold) for threshold in (0.0, *starmap(_between, pairwise(values)), 1.0)]

    def best(self) -> Abstention:
        """The one with the most right decisions, of equals the strictest."""
        return max(self.curve(), key=lambda point: point.decided)

    def risk_at(self, coverage: float) -> float:
        """The risk of the strictest threshold that answers at least this share."""
        return next(point.risk for point in self.curve() if point.coverage >= coverage - 1e-9)


def draw_risk(books: Mapping[str, AskedTwice], chosen: Abstention, path: Path) -> None:
    """Draw each book's curve and the chosen threshold as PNG or SVG, by the file's ending."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(6, 5), layout="constrained")
    axes = figure.add_subplot()
    for name, asked in books.items():
        points = [point for point in asked.curve() if point.coverage]
        coverages, risks = [100 * point.coverage for point in points], [100 * point.risk for point in points]
        axes.plot(coverages, risks, label=f"{name}, AUC {asked.auc:.3f}")
    axes.plot(100 * chosen.coverage, 100 * chosen.risk, "ko", label=f"threshold {chosen.threshold:.3g}")
    axes.set(xlabel="coverage: answered, %", ylabel="risk: wrong among the answers, %", xlim=(0, 101), ylim=(0, 101))
    axes.legend(fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _between(below: float, above: float) -> float:
    """A threshold between two values, with few digits where they leave room."""
    middle = (below + above) / 2
    rounded = float(f"{middle:.{DIGITS}g}")
    return rounded if below <= rounded < above else middle
