"""What the tables of the paper are made of, worked out by hand."""

import math

import pytest

from openbook_lab.datasets.golds import AnswerPattern, Golds
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.index_asking import PaperPlan
from openbook_lab.evaluation.paper import mark_answers
from openbook_lab.evaluation.reader import Decode
from openbook_lab.evaluation.statistics import Interval


def means(cells: tuple[object, ...]) -> list[float]:
    found = []
    for cell in cells:
        assert isinstance(cell, Interval)
        found.append(cell.mean)
    return found


def test_answers_may_be_right_where_no_passage_holds_one() -> None:
    given = [GivenAnswer(text, -1.0, (1.0,)) for text in ("The Lima", "quito", "nairobi", "rio bravo")]
    golds = [Golds(("lima",)), Golds(("lima", "quito")), Golds(("nairobi",)), Golds(("bravo",))]
    # three of four are right; of the three questions whose passages hold no answer, two
    assert means(mark_answers(given, golds, [True, False, False, False])) == pytest.approx([75, 275 / 3, 25, 200 / 3])


def test_patterns_have_no_f1_and_where_every_passage_holds_an_answer_none_is_right_without() -> None:
    golds = [Golds(patterns=(AnswerPattern("lim[ae]", "here"),))] * 2
    first = means(mark_answers([GivenAnswer(text, 0.0, ()) for text in ("Lime", "no")], golds, [True, True]))
    assert (first[0], first[2]) == (50, 100)
    assert math.isnan(first[1])
    assert math.isnan(first[3])
    assert means(mark_answers([GivenAnswer("no", 0.0, ())], golds[:1], [False]))[3] == 0


def test_thorough_and_fast_say_nothing_to_rag_token() -> None:
    assert PaperPlan(num_beams=3, decoding="fast").decodes == (Decode("token", 3), Decode("sequence", 3, "fast"))
