import pytest

from openbook.errors import InvalidRequest
from openbook_lab.evaluation.facts import FactQuestion, fact_questions, facts_misses, facts_tables
from tests.fixtures.evaluation import mean

QUESTIONS = (
    FactQuestion("What is the capital of Peru?", "capital", "plain", ("Lima",), ()),
    FactQuestion("What is the population of Peru?", "population", "plain", ("31 million",), ("32 million",)),
    FactQuestion("population of kenya", "population", "keywords", ("46 million",), ("48 million",)),
)


def test_every_kind_of_fact_is_drawn_from_alike() -> None:
    some = fact_questions(2016, per_kind=2, seed=3)
    kinds = [one.kind for one in some]
    assert len(set(kinds)) >= 15
    assert "office" not in kinds
    assert {kinds.count(kind) for kind in kinds} == {2}
    assert some == fact_questions(2016, per_kind=2, seed=3)


def test_a_fact_that_changed_knows_the_answer_of_the_other_year() -> None:
    then, now = (
        {one.text: one for one in fact_questions(year, kinds=["population", "capital"], styles=["plain"])}
        for year in (2016, 2018)
    )
    changed = [text for text, one in then.items() if one.other]
    assert len(changed) > 100
    for text in changed:
        assert then[text].other == now[text].answers
    assert not any(one.other for one in then.values() if one.kind == "capital" and one.answers == now[one.text].answers)


def test_an_answer_is_right_or_the_other_years_or_neither() -> None:
    answers = {"wiki-2016": list(zip(QUESTIONS, ("lima", "32 million", "nothing"), strict=True))}
    whole, by_kind = facts_tables(answers)
    assert [row[2:] for row in facts_misses(answers).rows] == [
        ("What is the population of Peru?", "32 million", "31 million"),
        ("population of kenya", "nothing", "46 million"),
    ]
    ((index, questions, right, _, changed, other, mean_over_kinds),) = whole.rows
    assert (index, questions, changed) == ("wiki-2016", 3, 2)
    assert (mean(right), mean(other), mean_over_kinds) == pytest.approx((100 / 3, 50, 50))
    assert [row[1:3] for row in by_kind.rows] == [("capital", 1), ("population", 2)]


def test_a_kind_that_there_is_none_of_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^kind: 'weather' is none of .*capital"):
        fact_questions(2016, kinds=["weather"])
