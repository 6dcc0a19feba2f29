"""Exact match, F1 and hits, against values worked out by hand."""

import pytest

from openbook_lab.datasets.qa_metrics import exact_match, f1, has_answer, normalise_answer


def test_case_punctuation_articles_and_spaces_do_not_count() -> None:
    assert normalise_answer("  The U.S.  is a  Country! ") == "us is country"


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        ("the Lima", ["Quito", "Lima."], True),
        ("Lima Peru", ["Lima"], False),
        ("Lima", [], False),
        ("an apple", ["Apple"], True),
        ("theatre", ["the atre"], False),  # an article is a whole word
        ("rock'n'roll", ["rocknroll"], True),
        ("5–4", ["5-4"], False),  # only ASCII punctuation is taken out
    ],
)
def test_exact_match_takes_any_of_the_normalised_answers(prediction: str, answers: list[str], expected: bool) -> None:
    assert exact_match(prediction, answers) is expected


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


@pytest.mark.parametrize(
    ("text", "answer", "expected"),
    [
        ("The capital is Lima, on the coast.", "lima", True),
        ("The capital is Lima, on the coast.", "Lima on", False),  # a comma is a word of its own
        ("The capital is Lima, on the coast.", "Lima , on", True),
        ("Limassol is in Cyprus.", "Lima", False),
        ("In 1,821 cases", "1821", False),
        ("the U.S. army", "U.S.", True),
        ("the US army", "U.S.", False),
        ("São Tomé", "Sa\u0303o Tome\u0301", True),  # composed and decomposed
        ("São Tomé", "Sao Tome", False),  # a mark counts
        ("São Tomé", "Sa", False),  # and belongs to its letter
        ("a state-of-the-art room", "state of the art", False),
        ("a state-of-the-art room", "state - of - the - art", True),
        ("of the people", "people", True),
        ("anything", "", False),
        ("", "Lima", False),
        ("price: 5\u00a0€\u200b", "5 €", True),  # separators and format characters are no words
    ],
)
def test_a_passage_holds_an_answer_when_its_words_stand_there_in_a_row(text: str, answer: str, expected: bool) -> None:
    assert has_answer(text, [answer]) is expected


def test_a_passage_holds_an_answer_when_it_holds_any_of_them() -> None:
    assert has_answer("Lima is large", ["Quito", "LIMA"])
    assert not has_answer("Lima is large", [])
