from collections import Counter

import pytest

from openbook_lab.encyclopedia import load_world
from openbook_lab.evaluation.leaders import LeaderQuestion, leader_questions, leaders_tables
from tests.fixtures.evaluation import mean

QUESTIONS = (
    LeaderQuestion("Who is the President of Peru?", "plain", {"2016": ("Kuczynski",), "2018": ("Vizcarra",)}),
    LeaderQuestion("Who is the King of Thailand?", "plain", {"2016": ("Rama IX",), "2018": ("Rama X",)}),
    LeaderQuestion("Who is the President of Cuba?", "plain", {"2016": ("Castro",), "2018": ("Diaz-Canel",)}),
    LeaderQuestion("president of iceland", "keywords", {"2016": ("Grimsson",), "2018": ("Johannesson",)}),
)


def test_each_changed_office_is_asked_with_the_holders_of_both_years() -> None:
    both = zip(load_world(2016).offices, load_world(2018).offices, strict=True)
    changed = {old.title + old.country for old, new in both if old.holder != new.holder}
    plain = [one for one in leader_questions() if one.style == "plain"]
    assert 0.95 * len(changed) <= len(plain) <= len(changed)
    peru = next(one for one in plain if one.text == "Who is the President of Peru?")
    assert any("Kuczynski" in answer for answer in peru.answers["2016"])
    assert any("Vizcarra" in answer for answer in peru.answers["2018"])
    for question in leader_questions():
        assert not set(question.answers["2016"]) & set(question.answers["2018"])


def test_a_question_is_asked_once_and_in_several_ways() -> None:
    every = leader_questions()
    assert len({one.text for one in every}) == len(every)
    assert len({one.style for one in every}) >= 8


def test_a_sample_has_so_many_of_each_way_and_follows_from_its_seed() -> None:
    some = leader_questions(sample=3, seed=1)
    assert set(Counter(one.style for one in some).values()) == {3}
    assert some == leader_questions(sample=3, seed=1) != leader_questions(sample=3)


def test_an_answer_counts_for_the_year_whose_holder_it_is() -> None:
    answers = {"wiki-2018": list(zip(QUESTIONS, ("the vizcarra", "Rama IX", "Diaz-Canel", "nobody"), strict=True))}
    (whole,), by_style = (table.rows for table in leaders_tables(answers))
    assert [mean(cell) for cell in whole[1:3]] == [25.0, 50.0]
    assert [(row[1], mean(row[3]), row[4]) for row in by_style] == [
        ("plain", pytest.approx(200 / 3), 3),
        ("keywords", 0, 1),
    ]
