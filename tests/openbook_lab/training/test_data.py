"""Which of several annotators' answers is generated, and which questions they do not agree on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import agreed_upon, by_agreement


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        # F1 of "in October 1973" and "October 1973" is 4/5, of either and "1973" 1/2 and 2/3
        (
            ("in October 1973", "October 1973", "October 1973", "1973"),
            {"October 1973": (4 / 5 + 1 + 2 / 3) / 3, "in October 1973": 2.1 / 3, "1973": (1 / 2 + 4 / 3) / 3},
        ),
        # of equals the shorter comes first
        (("x y", "x", "z"), {"x": 1 / 3, "x y": 1 / 3, "z": 0.0}),
        (("Lima",), {"Lima": 1.0}),
    ],
)
def test_agreement_is_the_mean_f1_with_the_others_and_the_most_comes_first(
    answers: tuple[str, ...], expected: dict[str, float]
) -> None:
    found = by_agreement(answers)
    assert [answer for _, answer in found] == list(expected)
    assert [score for score, _ in found] == pytest.approx(list(expected.values()))


@given(st.lists(st.sampled_from(["x", "x y", "y z", "z", "the x"]), min_size=1, max_size=5))
def test_every_distinct_answer_is_kept_once_with_a_share(answers: list[str]) -> None:
    found = by_agreement(answers)
    assert sorted(answer for _, answer in found) == sorted(set(answers))
    assert all(0 <= score <= 1 for score, _ in found)


def test_a_question_that_annotators_read_differently_is_left_out() -> None:
    asked = [
        Question("When?", ("1821", "in 1821", "1821")),
        Question("Why?", ("the rain", "a long drought", "nobody knows")),
        Question("Never?", ()),
        Question("Who?", ("Maria",)),
    ]
    kept = agreed_upon(asked)
    assert [question.text for question in kept] == ["When?", "Never?", "Who?"]
    assert kept[0].answers == ("1821", "in 1821")
