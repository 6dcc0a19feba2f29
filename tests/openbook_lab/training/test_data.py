"""Which of several annotators' answers is generated, and which questions they do not agree on."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openbook.errors import SourceInvalid
from openbook.storage.feedback import FeedbackFile, FeedbackRecord, Rating
from openbook_lab.datasets.questions import Question
from openbook_lab.training.data import agreed_upon, by_agreement, read_all, read_feedback
from openbook_lab.training.recipe import TrainingConfig


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


def test_feedback_teaches_corrections_and_what_was_right_and_the_last_word_counts(tmp_path: Path) -> None:
    path = tmp_path / "feedback.jsonl"
    kept = FeedbackFile(path)

    def say(question: str, rating: Rating, correction: str | None = None, answer: str | None = "given") -> None:
        kept.append(FeedbackRecord("t", "id", rating, correction, question, answer, "wiki-2016", "mini@0"))

    say("Right?", "up")
    say("Wrong?", "down")
    say("Corrected?", "down", "so")
    say("Right, and better so?", "up", "better")
    say("Rightly withheld?", "up", answer=None)
    say("First wrong, then right?", "down")
    say("First wrong, then right?", "up")
    say("First right, then wrong?", "up")
    say("First right, then wrong?", "down")
    expected = {"Right?": "given", "Corrected?": "so", "Right, and better so?": "better"}
    expected["First wrong, then right?"] = "given"
    found = read_all(TrainingConfig(output=tmp_path / "out", work=tmp_path, feedback=(path,))).alone
    assert {question.text: question.answers for question in found} == {q: (a,) for q, a in expected.items()}
    path.write_text("no feedback\n")
    with pytest.raises(SourceInvalid, match="holds no feedback"):
        read_feedback(path)
