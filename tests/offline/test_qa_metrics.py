"""Exact match and F1, against values worked out by hand."""

import pytest

from service.offline.qa_metrics import exact_match, f1, normalise_answer


def test_case_punctuation_articles_and_spaces_do_not_count() -> None:
    assert normalise_answer("  The U.S.  is a  Country! ") == "us is country"


def test_exact_match_takes_any_of_the_answers() -> None:
    assert exact_match("the Lima", ["Quito", "Lima."])
    assert not exact_match("Lima Peru", ["Lima"])
    assert not exact_match("Lima", [])


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        ("Maria Lopez", ["Lopez"], 2 / 3),
        ("Maria Lopez", ["Ana", "Maria Lopez Torres"], 0.8),
        ("lima lima", ["lima"], 2 / 3),
        ("Quito", ["Lima"], 0.0),
        ("", ["Lima"], 0.0),
        ("the", ["a"], 1.0),
        ("Lima", [], 0.0),
    ],
)
def test_f1_counts_shared_words_once(prediction: str, answers: list[str], expected: float) -> None:
    assert f1(prediction, answers) == pytest.approx(expected)
