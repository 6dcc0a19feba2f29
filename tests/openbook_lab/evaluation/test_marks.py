"""Marks and their differences, worked out by hand."""

import pytest

from openbook_lab.datasets.golds import Golds
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.marks import Marks, mark_answers
from tests.fixtures.evaluation import mean


def test_answers_are_marked_against_the_golds_of_their_question() -> None:
    answers = [GivenAnswer("The Lima", 0.0, ()), GivenAnswer("Maria Lopez", 0.0, ())]
    marks = mark_answers(answers, [Golds((text,)) for text in ("lima", "Lopez")])
    assert marks.by_metric == {"EM": [1.0, 0.0], "F1": [1.0, pytest.approx(2 / 3)], "named": [1.0, 1.0]}
    count, matched, overlap, named = marks.cells()
    assert (count, mean(matched), round(mean(overlap), 1), mean(named)) == (2, 50.0, 83.3, 100.0)


def test_a_difference_is_over_the_questions_that_both_have() -> None:
    first = Marks({"EM": (1.0, 1.0, None, 0.0), "F1": (1.0, 0.5, None, 0.0)})
    second = Marks({"EM": (0.0, None, 1.0, 0.0), "F1": (0.5, None, 1.0, 0.0)})
    count, matched, overlap = first.minus(second).cells()
    assert (count, mean(matched), mean(overlap)) == (2, 50.0, 25.0)
