"""Which of several annotators' answers is generated, and which questions they do not agree on."""

from hypothesis import given
from hypothesis import strategies as st

from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import agreed_upon, by_agreement


def ordered(*answers: str) -> list[str]:
    return [answer for _, answer in by_agreement(answers)]


def test_what_most_annotators_say_comes_first() -> None:
    assert ordered("in October 1973", "October 1973", "October 1973", "1973")[0] == "October 1973"


def test_agreement_is_the_mean_f1_with_the_others() -> None:
    # "a b" and "a" share one word of 2 + 1: F1 2/3; "c" shares none
    scores = {answer: score for score, answer in by_agreement(("x y", "x", "z"))}
    assert scores == {"x y": 1 / 3, "x": 1 / 3, "z": 0.0}


def test_of_equals_the_shorter_comes_first() -> None:
    assert ordered("x y", "x") == ["x", "x y"]


def test_a_lone_answer_is_agreed_upon() -> None:
    assert by_agreement(("Lima",)) == [(1.0, "Lima")]


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
