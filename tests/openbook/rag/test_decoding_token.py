"""RAG-Token, greedy and beam search, against plain loops over full forward passes in float64."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from openbook.entities import AnswerOptions, Hypothesis
from openbook.rag import decoding
from openbook.rag.decoder import BetweenSteps, DecoderState, nothing
from openbook.rag.encoder_decoder import EncodedPassages
from tests.openbook.rag.conftest import Case, Hypotheses, Subject, make_case
from tests.reference.reference import Found, Reference

MAX_NEW_TOKENS = 10
References = Callable[[Case], Reference]


def decode(subject: Subject, *cases: Case, num_beams: int, max_new_tokens: int = MAX_NEW_TOKENS) -> list[Hypotheses]:
    return subject.decode(*cases, num_beams=num_beams, max_new_tokens=max_new_tokens)


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Found]) -> None:
    assert [one.token_ids for one in found] == [one.tokens for one in expected]
    assert [one.log_prob for one in found] == pytest.approx([one.log_prob for one in expected], abs=1e-4)


@pytest.mark.parametrize("n_docs", [1, 2, 5, 10])
def test_greedy_takes_the_likeliest_token_of_the_marginal(tiny: Subject, references: References, n_docs: int) -> None:
    case = make_case(n_docs, n_docs)
    (found,) = decode(tiny, case, num_beams=1)
    assert_same(found, [references(case).rag_token_greedy(MAX_NEW_TOKENS)])


@pytest.mark.parametrize("num_beams", [2, 3, 5])
@pytest.mark.parametrize(("seed", "n_docs"), [(1, 1), (2, 2), (5, 5), (10, 10)])
def test_beams_hold_what_the_plain_search_finds(
    tiny: Subject, references: References, seed: int, n_docs: int, num_beams: int
) -> None:
    case = make_case(seed, n_docs)
    (found,) = decode(tiny, case, num_beams=num_beams)
    assert_same(found, references(case).rag_token_beam(num_beams, MAX_NEW_TOKENS))


def test_questions_of_a_batch_are_answered_as_if_alone(tiny: Subject, references: References) -> None:
    cases = [make_case(seed, 4, longest=longest) for seed, longest in ((21, 3), (22, 60), (23, 20), (24, 100))]
    lengths = {len(tokens) for case in cases for tokens in tiny.inputs(case)}
    assert len(lengths) > 8, "the batch is to be padded"
    for num_beams in (1, 4):
        batch = decode(tiny, *cases, num_beams=num_beams)
        for case, found in zip(cases, batch, strict=True):
            assert_same(found, references(case).rag_token_beam(num_beams, MAX_NEW_TOKENS))


def test_the_empty_answer_has_the_probability_that_both_models_give_it(tiny: Subject) -> None:
    cases = [make_case(seed, 4) for seed in (11, 12)]
    encoded, log_prior = tiny.encode(*cases)
    eos = tiny.generator.eos
    found = decoding.empty_log_prob(tiny.generator.start(encoded), log_prior, eos)  # (Q,)
    for one, case in zip(found.tolist(), cases, strict=True):
        assert one == pytest.approx(tiny.reference(case).rag_token_log_prob((eos,)), abs=1e-4)
        assert one == pytest.approx(tiny.reference(case).rag_sequence_log_prob((eos,)), abs=1e-4)


@pytest.mark.parametrize("max_new_tokens", [1, 2, 3])
def test_answers_are_cut_at_max_new_tokens_without_an_end(
    tiny: Subject, references: References, max_new_tokens: int
) -> None:
    unended = 0
    for seed in range(61, 65):
        case = make_case(seed, 3)
        (found,) = decode(tiny, case, num_beams=3, max_new_tokens=max_new_tokens)
        assert_same(found, references(case).rag_token_beam(3, max_new_tokens))
        unended += sum(one.token_ids[-1] != tiny.generator.eos for one in found)
        assert all(len(one.token_ids) <= max_new_tokens for one in found)
    assert unended >= 2


@pytest.mark.parametrize("num_beams", [1, 3])
def test_byte_pairs_and_a_decoder_that_starts_with_its_end(tiny_bart: Subject, num_beams: int) -> None:
    """facebook/rag-token-nq: </s> opens the decoder's input and ends the answer."""
    assert tiny_bart.exact.config.decoder_start_token_id == tiny_bart.exact.config.eos_token_id
    for seed in (81, 82, 83):
        case = make_case(seed, 3, longest=15)
        (found,) = decode(tiny_bart, case, num_beams=num_beams)
        assert_same(found, tiny_bart.reference(case).rag_token_beam(num_beams, MAX_NEW_TOKENS))


@pytest.mark.parametrize("num_beams", [1, 3])
def test_any_encoder_decoder_can_be_the_generator(tiny_t5: Subject, num_beams: int) -> None:
    for seed in (84, 85, 86):
        case = make_case(seed, 3, longest=15)
        (found,) = decode(tiny_t5, case, num_beams=num_beams)
        assert_same(found, tiny_t5.reference(case).rag_token_beam(num_beams, MAX_NEW_TOKENS))


@pytest.mark.parametrize("n_docs", [1, 2, 6])
def test_the_posterior_of_a_token_is_the_joint_over_the_marginal(
    tiny: Subject, references: References, n_docs: int
) -> None:
    case = make_case(100 + n_docs, n_docs)
    (found,) = decode(tiny, case, num_beams=3)
    for one in found:
        expected = references(case).rag_token_posterior(one.token_ids)
        assert len(one.posterior) == len(one.token_ids)
        for column, by_hand in zip(one.posterior, expected, strict=True):
            assert sum(column) == pytest.approx(1.0, abs=1e-5)
            assert column == pytest.approx(by_hand, abs=1e-4)


class Watched:
    """A state that notes how many rows each of its steps has, and those of its branches."""

    def __init__(self, state: DecoderState, rows: list[int]) -> None:
        self._state, self._rows = state, rows

    @property
    def logits(self) -> torch.Tensor:
        return self._state.logits

    def advance(self, sources: torch.Tensor, tokens: torch.Tensor) -> None:
        self._rows.append(len(tokens))
        self._state.advance(sources, tokens)

    def branch(self, rows: Sequence[int]) -> "Watched":
        return Watched(self._state.branch(rows), self._rows)


def test_what_is_done_or_no_more_wanted_is_computed_no_more(tiny: Subject) -> None:
    cases = [make_case(seed, 2) for seed in range(30, 36)]
    encoded, log_prior = tiny.encode(*cases)
    options = AnswerOptions(num_beams=2, max_new_tokens=MAX_NEW_TOKENS)

    def steps(encoded: EncodedPassages, log_prior: torch.Tensor, between_steps: BetweenSteps = nothing) -> list[int]:
        rows: list[int] = []
        watched: Any = Watched(tiny.generator.start(encoded), rows)
        decoding.decode(tiny.generator, watched, log_prior, options, between_steps)
        return rows

    alone = [steps(*tiny.encode(case)) for case in cases]
    assert len({len(one) for one in alone}) > 1, "some end before others"
    together = steps(encoded, log_prior)
    assert sum(together) == sum(map(sum, alone))
    assert together == sorted(together, reverse=True)
    assert steps(encoded, log_prior, lambda: (0, 1, 2, 4, 5)) == alone[3]
    assert steps(encoded, log_prior, lambda: range(len(cases))) == []
