"""A question that few passages leave unanswered is answered from more of them, exactly as if it had asked for those."""

from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from openbook.entities import AnswerOptions, StageSeconds
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.storage.snapshot import IndexSnapshot
from tests.openbook.rag.test_engine_together import assert_same
from tests.openbook.rag.test_listening import Heard

QUESTIONS = [
    *("who is the president of peru ?", "what is the population of kenya ?", "the island", "who is the king ?"),
    *("what is the currency ?", "the capital city", "who is the leader of japan ?", "the gdp of ghana", "a language"),
]
FEW = AnswerOptions(n_docs=3, or_all=True, max_new_tokens=6)
FURTHER = replace(FEW, most_docs=8)


@pytest.fixture(scope="module")
def doubting(tiny_checkpoint: Path, snapshot: IndexSnapshot) -> RagEngine:
    """An engine that doubts some of the questions, from three passages, and not the others."""
    checkpoint = load_checkpoint(tiny_checkpoint, bare=True)
    limit = median(one.no_answer for one in RagEngine(checkpoint).answer(QUESTIONS, snapshot, FEW))
    return RagEngine(replace(checkpoint, facts=replace(checkpoint.facts, max_no_answer=limit)))


@pytest.mark.parametrize("model", ["token", "sequence"])
def test_only_what_is_doubted_is_read_further(doubting: RagEngine, snapshot: IndexSnapshot, model: str) -> None:
    few, more, most = (
        doubting.answer(QUESTIONS, snapshot, replace(options, model=model, leave_one_out=True))
        for options in (FEW, replace(FEW, n_docs=8), FURTHER)
    )
    limit = doubting.facts.max_no_answer
    assert limit is not None
    doubted = [one.no_answer > limit for one in few]
    assert {True, False} == set(doubted)
    for was_doubted, of_few, of_more, answer in zip(doubted, few, more, most, strict=True):
        assert len(answer.passages) == (8 if was_doubted else 3)
        assert_same(answer, of_more if was_doubted else of_few)


def test_its_seconds_are_those_of_both_times() -> None:
    assert StageSeconds(0.5, 1, 2, 3, 7) + StageSeconds(0, 10, 20, 30, 60) == StageSeconds(0.5, 11, 22, 33, 67)


def test_what_may_be_replaced_is_not_told(doubting: RagEngine, snapshot: IndexSnapshot) -> None:
    heard = [Heard() for _ in QUESTIONS]
    answers = doubting.answer(
        QUESTIONS, snapshot, FURTHER, listeners={number: one.listener for number, one in enumerate(heard)}
    )
    for answer, one in zip(answers, heard, strict=True):
        told = [len(retrieval.passages) for retrieval in one.retrievals]
        assert told == ([3, 8] if len(answer.passages) == 8 else [3])
        assert tuple(one.tokens) == answer.tokens


@pytest.mark.parametrize("n_docs", [12, 13])
def test_a_version_without_more_passages_is_read_once_and_told(
    doubting: RagEngine, snapshot: IndexSnapshot, n_docs: int
) -> None:
    assert len(snapshot) == 12
    heard = Heard()
    options = replace(FURTHER, n_docs=n_docs, most_docs=20)
    (answer,) = doubting.answer(QUESTIONS[:1], snapshot, options, heard.between_steps, {0: heard.listener})
    assert [len(one.passages) for one in heard.retrievals] == [12]
    assert tuple(heard.tokens) == answer.tokens


def test_a_question_that_nobody_waits_for_costs_the_others_nothing(
    doubting: RagEngine, snapshot: IndexSnapshot
) -> None:
    answers = doubting.answer(QUESTIONS, snapshot, FURTHER)
    doubted = [number for number, one in enumerate(answers) if len(one.passages) == 8]
    assert len(doubted) > 2
    for gone in (doubted[0], min(set(range(len(QUESTIONS))) - set(doubted))):
        left = doubting.answer(QUESTIONS, snapshot, FURTHER, lambda gone=gone: (gone,))
        for number, (one, other) in enumerate(zip(answers, left, strict=True)):
            if number != gone:
                assert_same(other, one)
