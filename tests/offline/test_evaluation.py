import pytest

from service.errors import InvalidRequest
from service.offline.encyclopedia import load_world
from service.offline.evaluation import YEARS, LeaderQuestion, leader_questions, leaders_cells

QUESTIONS = (
    LeaderQuestion("Who is the President of Peru?", "plain", {2016: ("Kuczynski",), 2018: ("Vizcarra",)}),
    LeaderQuestion("Who is the King of Thailand?", "plain", {2016: ("Rama IX",), 2018: ("Rama X",)}),
    LeaderQuestion("Who is the President of Cuba?", "plain", {2016: ("Castro",), 2018: ("Diaz-Canel",)}),
    LeaderQuestion("Who is the President of Iceland?", "plain", {2016: ("Grimsson",), 2018: ("Johannesson",)}),
)


def test_each_changed_office_is_asked_about_with_the_holders_of_both_years() -> None:
    changed = {office.title + office.country for office in load_world(2016).offices if office.changed}
    plain = leader_questions(["plain"])
    assert 0.95 * len(changed) <= len(plain) <= len(changed)
    peru = next(one for one in plain if one.text == "Who is the President of Peru?")
    assert any("Kuczynski" in answer for answer in peru.answers[2016])
    assert any("Vizcarra" in answer for answer in peru.answers[2018])
    for question in leader_questions():
        assert not set(question.answers[2016]) & set(question.answers[2018])


def test_a_question_is_asked_once_and_in_several_ways() -> None:
    every = leader_questions()
    assert len({one.text for one in every}) == len(every)
    assert len({one.style for one in every}) >= 8
    assert leader_questions(["plain", "lower"]) == tuple(one for one in every if one.style in ("plain", "lower"))


def test_a_way_of_asking_that_there_is_none_of_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidRequest, match=r"^style: 'shouted' is none of .*plain"):
        leader_questions(["shouted"])


def test_an_answer_counts_for_the_year_whose_holder_it_is() -> None:
    told_of = ("the vizcarra", "Rama IX", "Diaz-Canel", "nobody")
    book = {question.text: answer for question, answer in zip(QUESTIONS, told_of, strict=True)}
    told: list[int] = []
    cells = leaders_cells("wiki-2018", QUESTIONS, book.__getitem__, answered=told.append)
    assert [(cell.index, cell.year, cell.correct, cell.asked) for cell in cells] == [
        ("wiki-2018", 2016, 1, 4),
        ("wiki-2018", 2018, 2, 4),
    ]
    assert [cell.accuracy for cell in cells] == [0.25, 0.5]
    assert told == [1, 2, 3, 4]


def test_a_book_that_knows_no_one_is_right_about_no_one() -> None:
    cells = leaders_cells("empty", QUESTIONS, lambda question: "")
    assert [(cell.year, cell.correct) for cell in cells] == [(year, 0) for year in YEARS]
