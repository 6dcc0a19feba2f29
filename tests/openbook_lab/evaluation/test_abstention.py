"""Whether to answer: shares by hand, and a threshold that none beats."""

import random
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.rag.no_answer import NoAnswerWeights
from openbook_lab.evaluation.abstention import AskedThrice, Signs, SignsThrice, fit_no_answer

# as many answerable as not, though one half lists two and the other four
ASKED = AskedThrice([0.1, 0.4], [0.2, 0.6], [0.8, 0.8], right=[True, False])
PROBABILITIES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=8)


def test_shares_are_over_both_halves_alike() -> None:
    point = ASKED.at(0.4)
    # half of all are answerable and answered, an eighth is not answerable and answered; a quarter is right
    assert (point.coverage, point.risk) == (0.5 + 0.125, pytest.approx(1 - 0.25 / 0.625))
    assert point.decided == 0.5 + 0.375
    assert pytest.approx(7 / 8) == ASKED.auc


def test_kinds_of_questions_without_an_answer_count_alike_however_many_they_are() -> None:
    near = replace(ASKED, near_misses=[0.3] * 7)
    assert near.at(0.35).decided == pytest.approx(0.25 + (0.5 + 1 + 0) / 3 / 2)


def test_the_curve_goes_from_no_answer_to_all_of_them() -> None:
    curve = ASKED.curve()
    assert [point.coverage for point in curve] == [0.0, 0.25, 0.375, 0.625, 0.75, 1.0]
    assert [point.threshold for point in curve] == [0.0, 0.15, 0.3, 0.5, 0.7, 1.0]
    assert (curve[0].risk, curve[-1].risk) == (0.0, 0.75)


def test_the_best_threshold_answers_what_the_book_answers() -> None:
    best = ASKED.best()
    assert (best.threshold, best.coverage, best.decided) == (0.5, 0.625, 0.875)
    assert replace(ASKED, right=[False, False]).best().threshold == best.threshold


@given(PROBABILITIES, PROBABILITIES, st.floats(0.0, 1.0))
def test_no_other_threshold_has_more_right_decisions(
    answerable: list[float], unanswerable: list[float], other: float
) -> None:
    asked = AskedThrice(answerable, unanswerable, [], right=[True] * len(answerable))
    best = asked.best()
    assert best == asked.at(best.threshold)
    assert best.decided >= asked.at(other).decided - 1e-12


def test_the_weights_that_made_the_questions_are_found_again() -> None:
    """Signs of a thousand questions, and chances of the weights below: the fit comes near the weights."""
    made, chances = NoAnswerWeights(bias=2.0, empty=0.5, coverage=-4.0, least=0.9), random.Random(3)
    halves: tuple[list[Signs], list[Signs]] = ([], [])
    for _ in range(4000):
        one = Signs(chances.uniform(0.01, 0.99), chances.random(), chances.uniform(0.01, 0.99))
        halves[chances.random() < one.no_answer(made)].append(one)
    found = fit_no_answer([SignsThrice(halves[0], halves[1][::2], halves[1][1::2])])
    assert astuple(found)[1:] == pytest.approx(astuple(made)[1:], rel=0.2)
    # both halves count alike: their ratio moves the bias alone
    fewer = fit_no_answer([SignsThrice(halves[0], halves[1][::4], [])])
    assert (fewer.bias, fewer.coverage) == pytest.approx((found.bias, found.coverage), rel=0.2)


def test_questions_that_are_told_apart_without_a_mistake_have_weights_that_end() -> None:
    told_apart = [
        SignsThrice([Signs(0.1, 0.0, 0.1), Signs(0.2, 1.0, 0.1)], [Signs(0.8, 0.0, 0.7)], [Signs(0.9, 1.0, 0.8)])
    ]
    found = fit_no_answer(told_apart)
    assert fit_no_answer(told_apart, newton_steps=100).empty == pytest.approx(found.empty, rel=1e-3)
    assert 0 < found.empty < 10


def test_without_weights_the_empty_answer_alone_counts() -> None:
    assert Signs(0.3, 0.5, 0.1).no_answer(None) == 0.3
    neutral = NoAnswerWeights(bias=0.0, empty=1.0, coverage=0.0)
    assert Signs(0.3, 0.5, 0.1).no_answer(neutral) == pytest.approx(0.3)
