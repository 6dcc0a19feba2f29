"""How sure a number is: the bootstrap (Efron 1979), and the area under the ROC curve."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 10_000
AUC_RESAMPLES = 1_000
LEVEL = 0.95
# Numbers drawn at a time, so that a few thousand questions take megabytes and not gigabytes.
_ENTRIES_AT_A_TIME = 2_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the values between which `LEVEL` of its resamples lie."""

    mean: float
    low: float
    high: float


def bootstrap(values: Sequence[float], *, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """The mean of `values` and its percentile interval over resamples with replacement. No values: all nan.

    To compare two systems over the same questions, give the differences: the interval is then the paired one.
    """
    given = np.asarray(values, dtype=np.float64)  # (N,)
    if not given.size:
        return Interval(float("nan"), float("nan"), float("nan"))
    random_state = np.random.default_rng(seed)
    at_a_time = max(1, _ENTRIES_AT_A_TIME // given.size)
    means = np.concatenate(
        [
            given[random_state.integers(given.size, size=(min(at_a_time, resamples - first), given.size))].mean(axis=1)
            for first in range(0, resamples, at_a_time)
        ]
    )  # (resamples,)
    return _interval(float(given.mean()), means)


def percent(values: Iterable[float | None]) -> Interval:
    """The bootstrapped mean of `values` as a percentage; None is left out."""
    found = bootstrap([value for value in values if value is not None])
    return Interval(100 * found.mean, 100 * found.low, 100 * found.high)


def auc(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """The chance that a positive scores above a negative, a tie counting half: the area under the ROC curve."""
    above, below = np.asarray(positives, dtype=np.float64), np.sort(np.asarray(negatives, dtype=np.float64))
    less = np.searchsorted(below, above, side="left")  # (P,)
    less_or_equal = np.searchsorted(below, above, side="right")  # (P,)
    return float((less + less_or_equal).mean() / 2 / below.size)


def auc_interval(positives: Sequence[float], negatives: Sequence[float], *, seed: int = 0) -> Interval:
    """The area with its percentile interval; both sides are resampled."""
    random_state = np.random.default_rng(seed)
    above, below = np.asarray(positives), np.asarray(negatives)
    resampled = [
        auc(random_state.choice(above, above.size).tolist(), random_state.choice(below, below.size).tolist())
        for _ in range(AUC_RESAMPLES)
    ]
    return _interval(auc(positives, negatives), resampled)


def _interval(mean: float, resampled: Sequence[float] | NDArray[np.float64]) -> Interval:
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Interval(mean, float(low), float(high))
