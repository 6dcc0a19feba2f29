"""Telling apart what the book answers and what it does not: areas under curves, and thresholds to choose from."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.statistics import auc, auc_interval, roc
from openbook_lab.evaluation.tables import Rows, Table

Kind = Literal["right", "wrong", "unanswerable", "left out"]
KINDS: tuple[Kind, ...] = get_args(Kind)
# Shares of the right answers that a threshold lets through.
SURVIVING = (0.99, 0.95, 0.9, 0.8, 0.7, 0.5)


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer, its kind, and whether any of its passages held an answer at all."""

    kind: Kind
    given: GivenAnswer
    held: bool

    def score(self, name: str) -> float:
        """The larger, the more the answer can be believed."""
        if name == "log_prob" or self.given.no_answer is None:
            return self.given.log_prob
        return -self.given.no_answer


@dataclass(frozen=True, slots=True)
class _Contest:
    """The scores that should be high, and those that should be low."""

    score: str
    name: str
    high: Sequence[float]
    low: Sequence[float]


def areas_table(outcomes: Mapping[str, Sequence[Outcome]]) -> Table:
    """How well each score tells outcomes apart: 1 always, 0.5 not at all. With a 95% bootstrap interval."""
    rows: Rows = [
        (name, one.score, one.name, len(one.high), len(one.low), auc_interval(one.high, one.low))
        for name, every in outcomes.items()
        for one in _contests(every)
    ]
    columns = ("model", "score", "what is told apart", "of the first", "of the second", "AUC")
    return Table("Answerable or not", columns, tuple(rows), digits=3)


def thresholds_table(outcomes: Mapping[str, Sequence[Outcome]]) -> tuple[Table, ...]:
    """For each score the thresholds that keep a share of the right answers, and what else they let through."""
    tables = []
    for name, every in outcomes.items():
        for score in scores_of(every):
            of_kind = {kind: np.array([one.score(score) for one in every if one.kind == kind]) for kind in KINDS}
            # the strictest threshold that keeps at least a share is one of the right answers' scores
            best_first = np.sort(of_kind["right"])[::-1]
            if not best_first.size:
                continue
            rows: Rows = []
            for share in SURVIVING:
                threshold = float(best_first[math.ceil(share * best_first.size) - 1])
                kept = (
                    100 * float((scores >= threshold).mean()) if scores.size else None for scores in of_kind.values()
                )
                bound = f"{score} >= {threshold:.3f}" if score == "log_prob" else f"{score} <= {-threshold:.3g}"
                rows.append((bound, *kept))
            columns = ("threshold", *(f"{kind} kept, %" for kind in KINDS))
            tables.append(Table(f"Thresholds: {name}, {score}", columns, tuple(rows)))
    return tuple(tables)


def scores_of(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """The scores that a threshold can be set on."""
    offered = bool(outcomes) and all(one.given.no_answer is not None for one in outcomes)
    return ("log_prob", "no_answer") if offered else ("log_prob",)


def draw_curves(outcomes: Mapping[str, Sequence[Outcome]], path: Path) -> None:
    """Draw the curves as PNG or SVG, by the file's ending."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(5 * len(outcomes), 5), layout="constrained")
    for number, (name, every) in enumerate(outcomes.items(), start=1):
        axes = figure.add_subplot(1, len(outcomes), number)
        for one in _contests(every):
            points = roc(one.high, one.low)
            axes.plot(
                [0.0, *(point.false_positive_rate for point in points)],
                [0.0, *(point.true_positive_rate for point in points)],
                label=f"{one.name}, {one.score}: {auc(one.high, one.low):.3f}",
            )
        axes.plot([0, 1], [0, 1], color="grey", linestyle=":")
        axes.set(title=name, xlabel="kept of the second", ylabel="kept of the first")
        axes.legend(fontsize="x-small", loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _contests(every: Sequence[Outcome]) -> Iterator[_Contest]:
    """What each score should tell apart, where there are outcomes on both sides."""
    found = [one for one in every if one.kind in ("right", "wrong") and one.held]
    of_kind = {kind: [one for one in every if one.kind == kind] for kind in KINDS}
    right = of_kind["right"]
    for score in scores_of(every):
        for name, high, low in (
            ("answer retrieved / unanswerable", found, of_kind["unanswerable"]),
            ("answer retrieved / article left out", found, of_kind["left out"]),
            ("right / wrong", right, of_kind["wrong"]),
            ("right / anything else", right, [one for one in every if one.kind != "right"]),
        ):
            if high and low:
                yield _Contest(score, name, [one.score(score) for one in high], [one.score(score) for one in low])
