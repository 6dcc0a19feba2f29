"""The whole model over a real index: retrieval, decoding, posteriors and provenance come together right."""

import math
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest

from openbook.entities import Answer, AnswerOptions, IndexVersion, Source, StageSeconds
from openbook.errors import InvalidRequest
from openbook.rag.decoder import DecoderState
from openbook.rag.encoder_decoder import EncodedPassages, EncoderDecoder
from openbook.rag.engine import RagEngine
from openbook.storage.snapshot import IndexSnapshot
from tests.openbook.rag.conftest import Case, Subject
from tests.reference.reference import Reference

QUESTION = "who is the president of peru ?"


@pytest.fixture(scope="module")
def reference(tiny: Subject, engine: RagEngine, snapshot: IndexSnapshot) -> Reference:
    """The plain loops over the five passages that the engine finds."""
    return tiny.reference(found_case(engine, snapshot, 5))


def without_seconds(answers: list[Answer]) -> list[Answer]:
    return [replace(one, source=replace(one.source, seconds=StageSeconds())) for one in answers]


def found_case(engine: RagEngine, snapshot: IndexSnapshot, n_docs: int) -> Case:
    found = engine.retrieve([QUESTION], snapshot, AnswerOptions(n_docs=n_docs))[0].passages
    return Case(QUESTION, tuple(one.passage for one in found), tuple(one.doc_score for one in found))


@pytest.mark.parametrize("num_beams", [1, 4])
def test_rag_token_answers_with_what_the_reference_decodes(
    tiny: Subject, engine: RagEngine, snapshot: IndexSnapshot, reference: Reference, num_beams: int
) -> None:
    options = AnswerOptions(num_beams=num_beams, num_answers=num_beams, max_new_tokens=8)
    (answer,) = engine.answer([QUESTION], snapshot, options)
    expected = reference.rag_token_beam(num_beams, 8)
    assert [one.log_prob for one in answer.answers] == pytest.approx([one.log_prob for one in expected], abs=1e-4)
    texts = [tiny.tokenizer.decode(one.tokens, skip_special_tokens=True) for one in expected]
    assert [one.text.lower().replace(" ", "") for one in answer.answers] == [one.replace(" ", "") for one in texts]
    assert answer.posterior_kind == "per_token"
    assert answer.no_answer == pytest.approx(math.exp(reference.rag_token_log_prob((tiny.generator.eos,))), abs=1e-5)
    columns = reference.rag_token_posterior(expected[0].tokens)
    assert len(answer.tokens) == len(columns)
    for token, column in zip(answer.tokens, columns, strict=True):
        assert token.posterior == pytest.approx(column, abs=1e-4)
    mean = [sum(column[k] for column in columns) / len(columns) for k in range(5)]
    assert [one.posterior for one in answer.passages] == pytest.approx(mean, abs=1e-4)


@pytest.mark.parametrize("decoding", ["thorough", "fast"])
def test_rag_sequence_answers_with_what_the_reference_decodes(
    engine: RagEngine, snapshot: IndexSnapshot, reference: Reference, decoding: str
) -> None:
    options = AnswerOptions(model="sequence", decoding=decoding, num_beams=3, num_answers=3, max_new_tokens=8)
    (answer,) = engine.answer([QUESTION], snapshot, options)
    expected = reference.thorough(3, 8) if decoding == "thorough" else reference.fast(3, 8)
    assert [one.log_prob for one in answer.answers] == pytest.approx([one.log_prob for one in expected[:3]], abs=1e-4)
    assert answer.posterior_kind == "running"
    if decoding == "thorough":
        last = reference.rag_sequence_posterior(expected[0].tokens)[-1]
        assert [one.posterior for one in answer.passages] == pytest.approx(last, abs=1e-4)
        assert answer.tokens[-1].posterior == pytest.approx(last, abs=1e-4)


@pytest.mark.parametrize("model", ["token", "sequence"])
def test_scores_are_log_probs_and_shares_of_the_targets_given(
    engine: RagEngine, snapshot: IndexSnapshot, tiny: Subject, reference: Reference, model: str
) -> None:
    targets = ["chile", "the king of nepal", "nepal", ""]
    (scores,) = engine.score([QUESTION], targets, snapshot, AnswerOptions(model=model))
    answers = tiny.generator.target_ids(targets)
    log_prob = reference.rag_token_log_prob if model == "token" else reference.rag_sequence_log_prob
    expected = [log_prob(answer) for answer in answers]
    assert [one.target for one in scores.targets] == targets
    assert [one.log_prob for one in scores.targets] == pytest.approx(expected, abs=1e-4)
    total = sum(map(math.exp, expected))
    assert [one.probability for one in scores.targets] == pytest.approx(
        [math.exp(one) / total for one in expected], abs=1e-4
    )
    if model == "sequence":
        for one, answer in zip(scores.targets, answers, strict=True):
            assert one.posterior == pytest.approx(reference.rag_sequence_posterior(answer)[-1], abs=1e-4)


def test_n_docs_above_the_index_are_refused_before_anything_is_read(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    for ask in (engine.answer, partial(engine.score, targets=["x"]), engine.retrieve):
        with pytest.raises(InvalidRequest, match="passages were asked for"):
            ask([QUESTION], snapshot=snapshot, options=AnswerOptions(n_docs=13))


def test_fewer_answers_than_asked_for_are_given_where_there_are_no_more(
    engine: RagEngine, snapshot: IndexSnapshot
) -> None:
    (answer,) = engine.answer([QUESTION], snapshot, AnswerOptions(num_beams=1, num_answers=5, max_new_tokens=4))
    assert len(answer.answers) == 1


@pytest.mark.parametrize("model", ["token", "sequence"])
def test_what_between_steps_raises_ends_the_work(engine: RagEngine, snapshot: IndexSnapshot, model: str) -> None:
    for calls_before in range(6):
        left = calls_before

        def tick() -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise TimeoutError

        with pytest.raises(TimeoutError):
            engine.answer([QUESTION], snapshot, AnswerOptions(model=model, num_beams=2, max_new_tokens=8), tick)


def test_the_engine_says_what_it_is_and_what_it_read(engine: RagEngine, tiny: Subject, snapshot: IndexSnapshot) -> None:
    source = engine.retrieve([QUESTION], snapshot, AnswerOptions())[0].source
    version = IndexVersion("tiny-2016", 0, "2016-12-21")
    assert source == Source(version, "", engine.facts.checkpoint, "dense", (), source.seconds)
    assert engine.facts.checkpoint == f"tiny@{tiny.checkpoint.fingerprint}"
    assert engine.facts.encoder_fingerprint == "tiny-encoder"
    assert engine.facts.dimension == 32


def test_threads_share_an_engine_and_a_snapshot(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    questions = [QUESTION, "what is the gdp of ghana ?", "who is king ?", "what language is it ?"] * 2
    options = AnswerOptions(num_beams=2, max_new_tokens=6)
    alone = [engine.answer([question], snapshot, options) for question in questions]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda question: engine.answer([question], snapshot, options), questions))
    assert list(map(without_seconds, together)) == list(map(without_seconds, alone))


def test_the_generators_last_position_can_be_used_and_no_further_one(
    engine: RagEngine, snapshot: IndexSnapshot, tiny: Subject
) -> None:
    longest = tiny.generator.wording.longest_answer
    assert longest == 256
    with pytest.raises(InvalidRequest, match="max_new_tokens: 257 tokens"):
        engine.answer([QUESTION], snapshot, AnswerOptions(max_new_tokens=257))
    with pytest.raises(InvalidRequest, match="targets: 257 tokens"):
        engine.score([QUESTION], ["peru", "a " * 256], snapshot, AnswerOptions(n_docs=1))
    (scores,) = engine.score([QUESTION], ["a " * 255], snapshot, AnswerOptions(n_docs=1))
    assert math.isfinite(scores.targets[0].log_prob)


def test_a_generator_of_relative_positions_says_as_much_as_it_likes(tiny_t5: Subject, snapshot: IndexSnapshot) -> None:
    engine = RagEngine(tiny_t5.checkpoint)
    assert tiny_t5.generator.wording.longest_answer is None
    (scores,) = engine.score([QUESTION], ["a " * 300], snapshot, AnswerOptions(n_docs=1))
    assert math.isfinite(scores.targets[0].log_prob)


def test_targets_that_are_one_to_the_generator_are_refused(engine: RagEngine, snapshot: IndexSnapshot) -> None:
    with pytest.raises(InvalidRequest, match="'peru' and 'Peru' are the same"):
        engine.score(["who"], ["peru", "lima", "Peru"], snapshot, AnswerOptions(n_docs=2))


def test_what_was_read_is_given_back_before_the_first_step(tiny: Subject, snapshot: IndexSnapshot) -> None:
    """The states of passages are as large as what the decoder makes of them: both would be in memory for all steps."""
    left = []

    class Watched(EncoderDecoder):
        def start(self, encoded: EncodedPassages) -> DecoderState:
            left.append(weakref.ref(encoded.states))
            return super().start(encoded)

    still_there: list[bool] = []
    RagEngine(tiny.checkpoint, generator=Watched(tiny.checkpoint)).answer(
        [QUESTION], snapshot, AnswerOptions(), lambda: still_there.extend(one() is not None for one in left)
    )
    assert left
    assert still_there
    assert not any(still_there)
