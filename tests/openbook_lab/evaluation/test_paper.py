"""What the tables of the paper are made of, worked out by hand."""

import math

import pytest

from openbook_lab.datasets.golds import AnswerPattern, Golds
from openbook_lab.evaluation.answer_log import GivenAnswer
from openbook_lab.evaluation.index_asking import PaperPlan
from openbook_lab.evaluation.paper import qa_cells
from openbook_lab.evaluation.reader import Decode
from tests.fixtures.evaluation import mean


def means(golds: list[Golds], held: list[bool], *texts: str) -> list[float]:
    """Over one passage for each question."""
    given = [GivenAnswer(text, -1.0, (1.0,)) for text in texts]
    return [mean(cell) for cell in qa_cells(golds, [[one, True] for one in held], given, 1)[1:]]


def test_answers_may_be_right_where_no_passage_holds_one() -> None:
    golds = [Golds(("lima",)), Golds(("lima", "quito")), Golds(("nairobi",)), Golds(("bravo",))]
    found = means(golds, [True, False, False, False], "The Lima", "quito", "nairobi", "rio bravo")
    # three of four are right; of the three questions whose passages hold no answer, two
    assert found == pytest.approx([75, 275 / 3, 25, 200 / 3])


def test_patterns_have_no_f1_and_no_unaided_answer_is_no_number() -> None:
    golds = [Golds(patterns=(AnswerPattern("lim[ae]", "here"),))] * 2
    assert means(golds, [True, True], "Lime", "no") == pytest.approx([50, math.nan, 100, math.nan], nan_ok=True)
    assert means(golds[:1], [False], "no")[3] == 0


def test_thorough_and_fast_say_nothing_to_rag_token() -> None:
    assert PaperPlan(num_beams=3, decoding="fast").decodes == (Decode("token", 3), Decode("sequence", 3, "fast"))
