"""Every question can be answered from the article that it names."""

import re
from collections import defaultdict

from openbook_lab.encyclopedia import Article, World, articles, passages, questions, shuffled


def _normalised(text: str) -> str:
    return " ".join(re.sub(r"[^a-z0-9.,$% ]", "", text.lower()).split())


def _passages_by_article(book: list[Article]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for passage in passages(book):
        found[passage.passage_id.split("#")[0]].append(_normalised(passage.text))
    return found


def test_the_first_answer_stands_whole_in_a_passage_of_its_article(world: World, book: list[Article]) -> None:
    texts = _passages_by_article(book)
    for question in questions(world):
        answer = _normalised(question.answers[0])
        assert any(answer in text for text in texts[question.article_id]), question


def test_an_invented_world_answers_its_own_questions(worlds: dict[int, World]) -> None:
    invented = shuffled(worlds[2018], 2)
    texts = _passages_by_article(list(articles(invented)))
    unanswered = [
        question
        for question in questions(invented)
        if not any(_normalised(answer) in text for text in texts[question.article_id] for answer in question.answers)
    ]
    assert unanswered == []


def test_answers_have_the_forms_that_a_reader_would_accept(worlds: dict[int, World]) -> None:
    answers = {
        (question.kind, question.article_id): question.answers
        for question in questions(worlds[2018])
        if question.style == "plain"
    }
    assert answers["gdp", "economy-of-algeria"] == ("$630 billion", "630 billion", "630 billion dollars")
    assert "41,657,488" in answers["population", "population-of-algeria"]
    assert answers["office", "president-of-the-united-states"] == ("Donald J. Trump", "Donald Trump")
    assert "Martin Vizcarra" in answers["office", "president-of-peru"]
    assert answers["capital", "peru"] == ("Lima",)
    assert answers["since", "president-of-france"] == ("14 May 2017", "2017")
    assert "Bolivia" in answers["borders", "geography-of-peru"]
