"""RAG-Token, greedy and beam search, against plain loops over full forward passes in float64."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from openbook.entities import AnswerOptions, Hypothesis, Passage
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


def test_passages_of_one_length_need_no_padding_and_decode_alike(tiny: Subject, references: References) -> None:
    case = make_case(31, 1)
    words = case.passages[0].text.split()
    same = tuple(Passage(str(k), case.passages[0].title, " ".join(words[k:] + words[:k])) for k in range(4))
    case = Case("who is the leader", same, (1.0, 0.5, 0.0, -0.5))
    encoded, _ = tiny.encode(case)
    assert bool(encoded.mask.all())
    (found,) = decode(tiny, case, num_beams=4)
    assert_same(found, references(case).rag_token_beam(4, MAX_NEW_TOKENS))


def test_an_answer_that_says_nothing_keeps_its_document_prior(tiny: Subject, references: References) -> None:
    """The end-of-sequence alone is an answer like any other: log sum_z p(z | x) p(eos | x, z)."""
    empty = 0
    for seed in range(40, 48):
        case = make_case(seed, 3)
        (found,) = decode(tiny, case, num_beams=3)
        reference = references(case)
        assert_same(found, reference.rag_token_beam(3, MAX_NEW_TOKENS))
        for one in found:
            if one.token_ids == (reference.eos,):
                empty += 1
                prior = reference.log_prior()
                by_hand = sum(math.exp(prior[z] + reference.next_log_probs(z, ())[reference.eos]) for z in range(3))
                assert one.log_prob == pytest.approx(math.log(by_hand), abs=1e-4)
    assert empty >= 2


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


def test_n_docs_is_what_was_given_not_the_checkpoints(tiny: Subject, references: References) -> None:
    assert tiny.rag.config.n_docs == 5
    case = make_case(71, 7)
    answers = set()
    for n_docs in (2, 5, 7):
        (found,) = decode(tiny, case.first(n_docs), num_beams=2)
        assert_same(found, references(case.first(n_docs)).rag_token_beam(2, MAX_NEW_TOKENS))
        answers.add(found[0].log_prob)
    assert len(answers) == 3


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


def test_more_beams_than_tokens_in_the_vocabulary(tiny_vocab: Subject) -> None:
    case = make_case(91, 3, words="a b", longest=8)
    (found,) = decode(tiny_vocab, case, num_beams=9, max_new_tokens=4)
    assert_same(found, tiny_vocab.reference(case).rag_token_beam(9, 4))


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


def test_the_log_probs_of_the_tokens_add_up_to_that_of_the_answer(tiny: Subject, references: References) -> None:
    case = make_case(111, 4)
    (found,) = decode(tiny, case, num_beams=4)
    for one in found:
        reference = references(case)
        expected = [reference.token_marginal(one.token_ids[:i])[token] for i, token in enumerate(one.token_ids)]
        assert one.token_log_probs == pytest.approx(expected, abs=1e-4)
        assert sum(one.token_log_probs) == pytest.approx(one.log_prob, abs=1e-4)


def test_between_steps_is_called_before_each_token_and_may_end_the_work(tiny: Subject) -> None:
    steps = 0

    def stop_at_the_third() -> None:
        nonlocal steps
        steps += 1
        if steps == 3:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        tiny.decode(make_case(112, 2), between_steps=stop_at_the_third)


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
