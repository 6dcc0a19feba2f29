"""RAG-Sequence, thorough and fast (section 2.5), and scores of given targets, against the plain reference."""

import math
from collections.abc import Callable, Sequence

import pytest

from openbook.entities import Hypothesis, ModelKind
from tests.openbook.rag.conftest import Case, Hypotheses, Subject, make_case
from tests.reference.reference import Found, Reference

MAX_NEW_TOKENS = 8
References = Callable[[Case], Reference]


def decode(
    subject: Subject, *cases: Case, num_beams: int, thorough: bool = True, max_new_tokens: int = MAX_NEW_TOKENS
) -> list[Hypotheses]:
    return subject.decode(
        *cases,
        model="sequence",
        decoding="thorough" if thorough else "fast",
        num_beams=num_beams,
        max_new_tokens=max_new_tokens,
    )


def assert_same(found: Sequence[Hypothesis], expected: Sequence[Found]) -> None:
    """The same answers with the same log-probs; two that are nearer than the tolerance may change places."""
    log_probs = {one.tokens: one.log_prob for one in expected}
    assert {one.token_ids for one in found} == set(log_probs)
    assert len(found) == len(expected)
    assert [one.log_prob for one in found] == pytest.approx([log_probs[one.token_ids] for one in found], abs=1e-4)
    assert [one.log_prob for one in found] == sorted((one.log_prob for one in found), reverse=True)


@pytest.mark.parametrize("thorough", [True, False], ids=["thorough", "fast"])
@pytest.mark.parametrize(
    ("seed", "n_docs", "num_beams"), [(1, 1, 1), (2, 1, 5), (3, 2, 1), (4, 2, 3), (7, 5, 4), (10, 10, 2)]
)
def test_candidates_and_scores_are_the_papers(
    tiny: Subject, references: References, seed: int, n_docs: int, num_beams: int, thorough: bool
) -> None:
    case = make_case(seed, n_docs)
    (found,) = decode(tiny, case, num_beams=num_beams, thorough=thorough)
    reference = references(case)
    expected = reference.thorough if thorough else reference.fast
    assert_same(found, expected(num_beams, MAX_NEW_TOKENS))


@pytest.mark.parametrize("thorough", [True, False], ids=["thorough", "fast"])
def test_questions_of_a_batch_are_answered_as_if_alone(tiny: Subject, references: References, thorough: bool) -> None:
    cases = [make_case(seed, 3, longest=longest) for seed, longest in ((21, 3), (22, 60), (23, 20))]
    assert len({len(tokens) for case in cases for tokens in tiny.inputs(case)}) > 5, "the batch is to be padded"
    for case, found in zip(cases, decode(tiny, *cases, num_beams=3, thorough=thorough), strict=True):
        reference = references(case)
        assert_same(found, (reference.thorough if thorough else reference.fast)(3, MAX_NEW_TOKENS))


def test_an_answer_that_says_nothing_keeps_its_document_prior(tiny: Subject, references: References) -> None:
    empty = 0
    for seed in range(40, 46):
        case = make_case(seed, 3)
        reference = references(case)
        (found,) = decode(tiny, case, num_beams=3)
        for one in found:
            if one.token_ids == (reference.eos,):
                empty += 1
                prior = reference.log_prior()
                by_hand = sum(math.exp(prior[z] + reference.next_log_probs(z, ())[reference.eos]) for z in range(3))
                assert one.log_prob == pytest.approx(math.log(by_hand), abs=1e-4)
    assert empty >= 2


@pytest.mark.parametrize("max_new_tokens", [1, 2, 3])
def test_unended_candidates_are_scored_without_an_end(
    tiny: Subject, references: References, max_new_tokens: int
) -> None:
    unended = 0
    for seed in range(61, 64):
        case = make_case(seed, 3)
        (found,) = decode(tiny, case, num_beams=3, max_new_tokens=max_new_tokens)
        assert_same(found, references(case).thorough(3, max_new_tokens))
        unended += sum(one.token_ids[-1] != tiny.generator.eos for one in found)
    assert unended >= 2


def test_fast_decoding_gives_no_posterior_to_passages_whose_beam_lacks_the_answer(
    tiny: Subject, references: References
) -> None:
    case = make_case(74, 4)
    (fast,) = decode(tiny, case, num_beams=2, thorough=False)
    reference = references(case)
    beams = [{one.tokens: one.log_prob for one in reference.passage_beam(z, 2, MAX_NEW_TOKENS)} for z in range(4)]
    prior = reference.log_prior()
    for one in fast:
        joint = [
            math.exp(prior[z] + beam[one.token_ids]) if one.token_ids in beam else 0.0 for z, beam in enumerate(beams)
        ]
        assert one.posterior[-1] == pytest.approx([share / sum(joint) for share in joint], abs=1e-4)


@pytest.mark.parametrize("n_docs", [1, 2, 6])
def test_the_posterior_runs_and_ends_at_the_passages_share_of_the_answer(
    tiny: Subject, references: References, n_docs: int
) -> None:
    case = make_case(100 + n_docs, n_docs)
    (found,) = decode(tiny, case, num_beams=2)
    for one in found:
        expected = references(case).rag_sequence_posterior(one.token_ids)
        for column, by_hand in zip(one.posterior, expected, strict=True):
            assert sum(column) == pytest.approx(1.0, abs=1e-5)
            assert column == pytest.approx(by_hand, abs=1e-4)
        assert sum(one.token_log_probs) == pytest.approx(one.log_prob, abs=1e-4)


def test_enough_beams_find_what_enumerating_every_answer_finds(tiny_vocab: Subject) -> None:
    """Six tokens, at most three said: 31 answers that end and 125 that reach the limit, all of them scored."""
    case = make_case(91, 3, words="a b", longest=8)
    reference = tiny_vocab.reference(case)
    every = reference.every_answer(range(6), max_new_tokens=3)
    assert len(every) == len(set(every)) == 1 + 5 + 25 + 125
    scored = [Found(answer, reference.rag_sequence_log_prob(answer)) for answer in every]
    assert math.fsum(math.exp(one.log_prob) for one in scored) == pytest.approx(1.0, abs=1e-9)
    best = sorted(scored, key=lambda one: -one.log_prob)
    (found,) = decode(tiny_vocab, case, num_beams=len(every), max_new_tokens=3)
    assert_same(found, best)
    (few,) = decode(tiny_vocab, case, num_beams=8, max_new_tokens=3)
    assert few[0].token_ids == best[0].tokens
    assert few[0].log_prob == pytest.approx(best[0].log_prob, abs=1e-4)


def test_enough_beams_find_the_likeliest_answer_of_rag_token_too(tiny_vocab: Subject) -> None:
    case = make_case(94, 3, words="a b", longest=8)
    reference = tiny_vocab.reference(case)
    every = reference.every_answer(range(6), max_new_tokens=3)
    scored = {answer: reference.rag_token_log_prob(answer) for answer in every}
    assert math.fsum(map(math.exp, scored.values())) == pytest.approx(1.0, abs=1e-9)
    (found,) = tiny_vocab.decode(case, num_beams=len(every), max_new_tokens=3)
    assert_same(found, [Found(answer, log_prob) for answer, log_prob in scored.items()])


@pytest.mark.parametrize("model", ["token", "sequence"])
def test_targets_of_any_length_are_scored_together(tiny: Subject, references: References, model: ModelKind) -> None:
    """More of them than one pass takes, long beside short, the empty answer and the padding token among them."""
    case = make_case(121, 4)
    reference = references(case)
    eos, pad = tiny.generator.eos, tiny.generator.wording.pad
    targets = [(eos,), (40, eos), (41, 42, 43, 44, 45, 46, eos), (90,), (pad, eos), (91, pad, 92, eos)]
    targets += [tuple(range(50, 50 + length)) for length in range(1, 9)]
    expected = reference.rag_sequence_log_prob if model == "sequence" else reference.rag_token_log_prob
    posterior = reference.rag_sequence_posterior if model == "sequence" else reference.rag_token_posterior
    scored = tiny.score(case, targets, model)
    assert [one.token_ids for one in scored] == targets
    for one in scored:
        assert one.log_prob == pytest.approx(expected(one.token_ids), abs=1e-4)
        for column, by_hand in zip(one.posterior, posterior(one.token_ids), strict=True):
            assert column == pytest.approx(by_hand, abs=1e-4)


@pytest.mark.parametrize("model", ["token", "sequence"])
@pytest.mark.parametrize("kind", ["tiny_bart", "tiny_t5"])
def test_other_generators_score_and_decode_alike(request: pytest.FixtureRequest, kind: str, model: ModelKind) -> None:
    subject: Subject = request.getfixturevalue(kind)
    case = make_case(130, 3, longest=15)
    reference = subject.reference(case)
    targets = [(40, 41, subject.generator.eos), (subject.generator.eos,)]
    expected = reference.rag_sequence_log_prob if model == "sequence" else reference.rag_token_log_prob
    scored = subject.score(case, targets, model)
    assert [one.log_prob for one in scored] == pytest.approx([expected(target) for target in targets], abs=1e-4)
    if model == "sequence":
        (found,) = decode(subject, case, num_beams=3)
        assert_same(found, reference.thorough(3, MAX_NEW_TOKENS))
        (found,) = decode(subject, case, num_beams=3, thorough=False)
        assert_same(found, reference.fast(3, MAX_NEW_TOKENS))
