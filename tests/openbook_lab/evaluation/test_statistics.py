"""The bootstrap against a closed form, the area under the curve against a plain double loop."""

import math
from itertools import accumulate
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook_lab.evaluation.statistics import auc, bootstrap

SCORES = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=12)


@pytest.mark.parametrize(("right", "asked"), [(24, 40), (3, 60), (150, 200)])
def test_the_interval_of_a_share_is_that_of_the_binomial(right: int, asked: int) -> None:
    # a resample of n questions, of which a share p is right, has Binomial(n, p) right ones
    found = bootstrap([1.0] * right + [0.0] * (asked - right))
    assert found.mean == right / asked
    low, high = (binomial_quantile(tail, asked, right / asked) / asked for tail in (0.025, 0.975))
    # a quantile of 10,000 resamples may fall on the count beside it
    assert found.low == pytest.approx(low, abs=1.01 / asked)
    assert found.high == pytest.approx(high, abs=1.01 / asked)


def binomial_quantile(tail: float, trials: int, p: float) -> int:
    """The smallest count that a Binomial(trials, p) does not exceed with at least this probability."""
    masses = (math.comb(trials, k) * p**k * (1 - p) ** (trials - k) for k in range(trials + 1))
    return next(count for count, below in enumerate(accumulate(masses)) if below >= tail)


def test_the_same_seed_gives_the_same_interval() -> None:
    values = Random(1).choices(range(100), k=300)
    assert bootstrap(values, seed=4) == bootstrap(values, seed=4)
    assert bootstrap(values, seed=4) != bootstrap(values, seed=5)


@given(SCORES, SCORES)
def test_the_area_is_the_chance_that_a_positive_scores_above_a_negative(
    positives: list[float], negatives: list[float]
) -> None:
    pairs = [(above > below) + (above == below) / 2 for above in positives for below in negatives]
    assert auc(positives, negatives) == pytest.approx(sum(pairs) / len(pairs))
