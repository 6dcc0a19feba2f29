"""Turns go on until the fastest times agree, and a machine that is too busy is said to be."""

import pytest

from openbook_lab.benchmarks import turns
from openbook_lab.benchmarks.turns import MOST_TIMES, percent_apart, spread


@pytest.mark.parametrize(
    ("seconds", "apart"),
    [([2.0, 1.0], 1.0), ([1.0, 9.0, 1.02, 5.0], 0.02), ([1.0, 1.1, 1.2, *[9.0] * 8], 0.2), ([3.0] * 7, 0.0)],
)
def test_the_spread_is_that_of_the_fastest_fifth_and_of_two_at_least(seconds: list[float], apart: float) -> None:
    assert spread(seconds) == pytest.approx(apart)


def test_one_answer_has_no_spread() -> None:
    assert spread([1.0]) is None
    assert percent_apart(None) is None


def test_a_row_says_of_itself_that_the_machine_was_too_busy() -> None:
    assert percent_apart(0.02) == "2.0%"
    assert percent_apart(0.2) == "20.0%, too busy"


def test_turns_end_with_the_last_contestant_that_becomes_steady() -> None:
    quick: list[float] = []
    slow: list[float] = []
    once = [30.0]
    for turn in turns.turns(3, [quick, slow, once]):
        quick.append(1.0)
        slow.append(1.0 if turn > 5 else 3.0 - turn / 5)
    assert len(quick) == 8, "the seventh is the first of the two that agree"
    steady: list[float] = []
    for _ in turns.turns(3, [steady]):
        steady.append(1.0)
    assert len(steady) == 3


def test_a_machine_that_never_becomes_steady_is_left() -> None:
    falling: list[float] = []
    for turn in turns.turns(3, [falling]):
        falling.append(0.5**turn)
    assert len(falling) == 3 * MOST_TIMES
