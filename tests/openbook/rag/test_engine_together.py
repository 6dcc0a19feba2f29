"""Several questions in one go, against each of them alone: an answer does not depend on its neighbours."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import Answer, AnswerOptions, ModelKind
from openbook.errors import InvalidRequest
from openbook.rag.engine import RagEngine
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.checkpoints import WORDS

SUBJECTS = ("peru", "the long river", "king of nepal", "a great green island in the north sea", "gdp ghana")
OPTIONS = (
    AnswerOptions(num_beams=1, max_new_tokens=8),
    AnswerOptions(num_beams=4, max_new_tokens=8, num_answers=4),
    AnswerOptions(n_docs=3, model="sequence", num_beams=3, max_new_tokens=6, num_answers=3),
    AnswerOptions(n_docs=2, model="sequence", decoding="fast", num_beams=2, max_new_tokens=6, num_answers=2),
)

# each for a generator with an encoder and for a causal one
pytestmark = pytest.mark.parametrize("engine", ["tiny_checkpoint", "tiny_causal_checkpoint"], indirect=True)

question_texts = st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=25).map(" ".join)


def assert_same(found: Answer, alone: Answer) -> None:
    assert [one.text for one in found.answers] == [one.text for one in alone.answers]
    assert [one.log_prob for one in found.answers] == pytest.approx([one.log_prob for one in alone.answers], abs=1e-4)
    assert found.no_answer == pytest.approx(alone.no_answer, abs=1e-4)
    assert [token.text for token in found.tokens] == [token.text for token in alone.tokens]
    for token, other in zip(found.tokens, alone.tokens, strict=True):
        assert token.log_prob == pytest.approx(other.log_prob, abs=1e-4)
        assert token.posterior == pytest.approx(other.posterior, abs=1e-4)
    assert [one.passage for one in found.passages] == [one.passage for one in alone.passages]
    assert [one.prior for one in found.passages] == pytest.approx([one.prior for one in alone.passages], abs=1e-4)
    assert [one.answer_spans for one in found.passages] == [one.answer_spans for one in alone.passages]


def assert_each_as_alone(
    engine: RagEngine, snapshot: IndexSnapshot, questions: Sequence[str], options: AnswerOptions
) -> None:
    together = engine.answer(questions, snapshot, options)
    assert len(together) == len(questions)
    for found, question in zip(together, questions, strict=True):
        assert_same(found, engine.answer([question], snapshot, options)[0])


@given(questions=st.lists(question_texts, min_size=2, max_size=6), options=st.sampled_from(OPTIONS))
@settings(max_examples=8, derandomize=True)
def test_whatever_is_asked_together_is_answered_as_each_alone(
    engine: RagEngine, snapshot: IndexSnapshot, questions: list[str], options: AnswerOptions
) -> None:
    assert_each_as_alone(engine, snapshot, questions, options)


def test_passages_are_found_together_as_each_alone(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    options = AnswerOptions(n_docs=4)
    for found, question in zip(engine.retrieve(SUBJECTS, snapshot, options), SUBJECTS, strict=True):
        (alone,) = engine.retrieve([question], snapshot, options)
        assert [one.passage for one in found.passages] == [one.passage for one in alone.passages]
        assert [one.doc_score for one in found.passages] == pytest.approx(
            [one.doc_score for one in alone.passages], abs=1e-4
        )


@pytest.mark.parametrize("model", ["token", "sequence"])
def test_targets_are_scored_together_as_each_alone(
    engine: RagEngine, snapshot: IndexSnapshot, model: ModelKind
) -> None:
    options, targets = AnswerOptions(n_docs=3, model=model), ["chile", "the king of nepal", ""]
    for found, question in zip(engine.score(SUBJECTS, targets, snapshot, options), SUBJECTS, strict=True):
        (alone,) = engine.score([question], targets, snapshot, options)
        for one, other in zip(found.targets, alone.targets, strict=True):
            assert one.log_prob == pytest.approx(other.log_prob, abs=1e-4)
            assert one.posterior == pytest.approx(other.posterior, abs=1e-4)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda one: f"{one.model}-{one.decoding}-{one.num_beams}")
def test_an_abandoned_question_leaves_and_the_others_are_answered_as_alone(
    engine: RagEngine, snapshot: IndexSnapshot, options: AnswerOptions
) -> None:
    calls = 0

    def first_and_third_go() -> tuple[int, ...]:
        nonlocal calls
        calls += 1
        return () if calls < 5 else (0, 2)

    together = engine.answer(SUBJECTS, snapshot, options, first_and_third_go)
    assert calls > 5
    for number in (1, 3, 4):
        assert_same(together[number], engine.answer([SUBJECTS[number]], snapshot, options)[0])


def test_an_error_fails_the_whole_batch(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    with pytest.raises(InvalidRequest, match="leaves no room for a passage"):
        engine.answer(["peru", "long " * 400], snapshot, AnswerOptions())
