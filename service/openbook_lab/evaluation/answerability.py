"""Telling apart what the book answers and what it does not: areas under curves, and thresholds to choose from."""

import importlib.util
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from openbook.errors import SettingInvalid
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.statistics import LEVEL, Interval, auc, roc
from openbook_lab.evaluation.tables import Cell, Table

Kind = Literal["right", "wrong", "unanswerable", "left out"]
# Shares of the right answers that a threshold lets through.
SURVIVING = (0.99, 0.95, 0.9, 0.8, 0.7, 0.5)
RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer, what became of it, and whether any of its passages held an answer at all."""

    kind: Kind
    given: GivenAnswer
    held: bool


@dataclass(frozen=True, slots=True)
class _Contest:
    """Which outcomes should score high, and which low."""

    name: str
    high: Sequence[Outcome]
    low: Sequence[Outcome]


def areas_table(outcomes: Mapping[str, Sequence[Outcome]]) -> Table:
    """How well a score tells them apart: 1 always, 0.5 not at all. With a 95% bootstrap interval."""
    rows: list[tuple[Cell, ...]] = []
    for name, every in outcomes.items():
        for score in scores_of(every):
            for contest in _contests(every):
                high = [value(one, score) for one in contest.high]
                low = [value(one, score) for one in contest.low]
                rows.append((name, score, contest.name, len(high), len(low), area(high, low)))
    columns = ("model", "score", "what is told apart", "of the first", "of the second", "AUC")
    return Table("Answerable or not", columns, tuple(rows), digits=3)


def thresholds_table(outcomes: Mapping[str, Sequence[Outcome]]) -> tuple[Table, ...]:
    """For each score the thresholds that keep so many of the right answers, and what else they let through."""
    tables = []
    kinds: tuple[Kind, ...] = ("right", "wrong", "unanswerable", "left out")
    for name, every in outcomes.items():
        for score in scores_of(every):
            of_kind = {kind: np.array([value(one, score) for one in every if one.kind == kind]) for kind in kinds}
            if not of_kind["right"].size:
                continue
            rows: list[tuple[Cell, ...]] = []
            for share in SURVIVING:
                # the strictest threshold that keeps at least this share
                best_first = np.sort(of_kind["right"])[::-1]
                threshold = float(best_first[math.ceil(share * best_first.size) - 1])
                kept = (
                    100 * float((scores >= threshold).mean()) if scores.size else None for scores in of_kind.values()
                )
                bound = f"{score} >= {threshold:.3f}" if score == "log_prob" else f"{score} <= {-threshold:.3g}"
                rows.append((bound, *kept))
            columns = ("threshold", *(f"{kind} kept, %" for kind in kinds))
            tables.append(Table(f"Thresholds: {name}, {score}", columns, tuple(rows)))
    return tuple(tables)


def area(high: Sequence[float], low: Sequence[float], *, seed: int = 0) -> Interval:
    """The area under the curve with its percentile interval; both sides are resampled."""
    if not high or not low:
        return Interval(float("nan"), float("nan"), float("nan"))
    random_state = np.random.default_rng(seed)
    first, second = np.asarray(high), np.asarray(low)
    resampled = [
        auc(random_state.choice(first, first.size).tolist(), random_state.choice(second, second.size).tolist())
        for _ in range(RESAMPLES)
    ]
    tail = (1 - LEVEL) / 2
    below, above = np.quantile(resampled, [tail, 1 - tail])
    return Interval(auc(high, low), float(below), float(above))


def scores_of(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    """What there is to set a threshold on."""
    offered = bool(outcomes) and all(one.given.no_answer is not None for one in outcomes)
    return ("log_prob", "no_answer") if offered else ("log_prob",)


def value(outcome: Outcome, score: str) -> float:
    """The larger, the more an answer is to be believed."""
    if score == "log_prob" or outcome.given.no_answer is None:
        return outcome.given.log_prob
    return -outcome.given.no_answer


def check_can_draw() -> None:
    """Raise SettingInvalid without matplotlib, before there is work that would be lost."""
    if importlib.util.find_spec("matplotlib") is None:
        raise SettingInvalid(setting="--plot", reason="needs matplotlib: pip install 'openbook[plots]'")


def draw_curves(outcomes: Mapping[str, Sequence[Outcome]], path: Path) -> None:
    """The curves as PNG or SVG, by the file's ending."""
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(5 * len(outcomes), 5), layout="constrained")
    for number, (name, every) in enumerate(outcomes.items(), start=1):
        axes = figure.add_subplot(1, len(outcomes), number)
        for score in scores_of(every):
            for contest in _contests(every):
                high = [value(one, score) for one in contest.high]
                low = [value(one, score) for one in contest.low]
                points = roc(high, low)
                axes.plot(
                    [0.0, *(point.false_positive_rate for point in points)],
                    [0.0, *(point.true_positive_rate for point in points)],
                    label=f"{contest.name}, {score}: {auc(high, low):.3f}",
                )
        axes.plot([0, 1], [0, 1], color="grey", linestyle=":")
        axes.set(title=name, xlabel="kept of the second", ylabel="kept of the first")
        axes.legend(fontsize="x-small", loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _contests(every: Sequence[Outcome]) -> list[_Contest]:
    of_book = [one for one in every if one.kind in ("right", "wrong")]
    right = [one for one in every if one.kind == "right"]
    found = [one for one in of_book if one.held]
    unanswerable = [one for one in every if one.kind == "unanswerable"]
    left_out = [one for one in every if one.kind == "left out"]
    contests = [
        _Contest("answer retrieved / unanswerable", found, unanswerable),
        _Contest("answer retrieved / article left out", found, left_out),
        _Contest("right / wrong", right, [one for one in of_book if one.kind == "wrong"]),
        _Contest("right / anything else", right, [one for one in every if one.kind != "right"]),
    ]
    return [contest for contest in contests if contest.high and contest.low]
