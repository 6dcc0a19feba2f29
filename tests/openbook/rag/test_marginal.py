"""The equations of section 2.1, by hand and by their properties."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from openbook.rag import marginal

# Two passages, three tokens in the vocabulary, an answer of two tokens. Doc scores ln 3 and ln 1:
#   p(z1 | x) = 3/4, p(z2 | x) = 1/4
DOC_SCORES = torch.tensor([math.log(3.0), 0.0], dtype=torch.float64)
# The likelihood of the two tokens of the answer with each passage:
#   z1: 1/2 1/5      z2: 1/10 4/5
LIKELIHOOD = torch.tensor([[0.5, 0.2], [0.1, 0.8]], dtype=torch.float64)


def log_prior() -> Tensor:
    return marginal.doc_log_prior(DOC_SCORES)


def test_the_prior_is_the_softmax_of_the_inner_products() -> None:
    assert log_prior().exp().tolist() == pytest.approx([0.75, 0.25])


def test_a_step_of_rag_token_weighs_the_next_tokens_by_the_prior() -> None:
    # z1: (1/2, 1/4, 1/4), z2: (1/10, 1/10, 4/5)
    #   3/4 * 1/2 + 1/4 * 1/10 = 0.375  + 0.025 = 0.4
    #   3/4 * 1/4 + 1/4 * 1/10 = 0.1875 + 0.025 = 0.2125
    #   3/4 * 1/4 + 1/4 * 4/5  = 0.1875 + 0.2   = 0.3875
    step = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], dtype=torch.float64).log()
    assert marginal.token_marginal(step, log_prior()).exp().tolist() == pytest.approx([0.4, 0.2125, 0.3875])


def test_the_posterior_of_a_token_starts_from_the_prior_each_time() -> None:
    # token 1: joint 0.375, 0.025 of 0.4  -> 0.9375, 0.0625
    # token 2: joint 0.15, 0.2 of 0.35    -> 3/7, 4/7
    posterior = marginal.token_posterior(LIKELIHOOD.log(), log_prior()).exp()
    assert posterior[:, 0].tolist() == pytest.approx([0.9375, 0.0625])
    assert posterior[:, 1].tolist() == pytest.approx([3 / 7, 4 / 7])


def test_rag_sequence_multiplies_before_it_sums() -> None:
    # after token 1: 3/4 * 1/2 + 1/4 * 1/10             = 0.4
    # after token 2: 3/4 * 1/2 * 1/5 + 1/4 * 1/10 * 4/5 = 0.075 + 0.02 = 0.095
    assert marginal.sequence_marginal(LIKELIHOOD.log(), log_prior()).exp().tolist() == pytest.approx([0.4, 0.095])


def test_the_running_posterior_adds_up_evidence() -> None:
    # after token 1: 0.375, 0.025 of 0.4; after token 2: 0.075, 0.02 of 0.095
    posterior = marginal.running_posterior(LIKELIHOOD.log(), log_prior()).exp()
    assert posterior[:, 0].tolist() == pytest.approx([0.9375, 0.0625])
    assert posterior[:, 1].tolist() == pytest.approx([0.075 / 0.095, 0.02 / 0.095])


def test_the_losses_are_minus_the_log_of_the_marginal() -> None:
    # RAG-Token: 0.4 * 0.35 = 0.14; RAG-Sequence: 0.095
    every = torch.ones(1, 2, dtype=torch.bool)
    of_token = marginal.rag_token_nll(LIKELIHOOD.log()[None], log_prior()[None], every)
    of_sequence = marginal.rag_sequence_nll(LIKELIHOOD.log()[None], log_prior()[None], every)
    assert of_token.tolist() == pytest.approx([-math.log(0.14)])
    assert of_sequence.tolist() == pytest.approx([-math.log(0.095)])


# --- properties --------------------------------------------------------------------------------------------

# the same examples in every run, however slow the machine
STEADY = settings(derandomize=True)
numbers = st.floats(-30.0, 30.0, allow_nan=False, width=32)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """doc_scores (K,) and token_log_probs (K, T), from flat to all but certain."""
    n_docs = draw(st.integers(1, 6))
    length = draw(st.integers(1, 5))
    scores = draw(st.lists(numbers, min_size=n_docs, max_size=n_docs))
    log_probs = draw(st.lists(st.floats(-40.0, 0.0), min_size=n_docs * length, max_size=n_docs * length))
    return (
        torch.tensor(scores, dtype=torch.float64),
        torch.tensor(log_probs, dtype=torch.float64).view(n_docs, length),
    )


Posterior = Callable[[Tensor, Tensor], Tensor]
posteriors = pytest.mark.parametrize("posterior", [marginal.token_posterior, marginal.running_posterior])
losses = pytest.mark.parametrize("nll", [marginal.rag_token_nll, marginal.rag_sequence_nll])


@posteriors
@STEADY
@given(problem=problems())
def test_posteriors_sum_to_one_at_every_token(posterior: Posterior, problem: tuple[Tensor, Tensor]) -> None:
    scores, log_probs = problem
    columns = posterior(log_probs, marginal.doc_log_prior(scores)).exp().sum(dim=0)  # (T,)
    assert torch.allclose(columns, torch.ones_like(columns))


@posteriors
@STEADY
@given(log_probs=st.lists(st.floats(-40.0, 0.0), min_size=1, max_size=5), score=numbers)
def test_a_single_passage_has_all_of_the_posterior(posterior: Posterior, log_probs: list[float], score: float) -> None:
    given_tokens = torch.tensor([log_probs], dtype=torch.float64)  # (1, T)
    shares = posterior(given_tokens, marginal.doc_log_prior(torch.tensor([score], dtype=torch.float64)))
    assert torch.equal(shares.exp(), torch.ones_like(shares))


@posteriors
@STEADY
@given(problem=problems())
def test_a_flat_likelihood_leaves_the_prior(posterior: Posterior, problem: tuple[Tensor, Tensor]) -> None:
    scores, log_probs = problem
    flat = log_probs[:1].expand_as(log_probs)  # (K, T), every passage says the same
    prior = marginal.doc_log_prior(scores)
    assert torch.allclose(posterior(flat, prior), prior[:, None].expand_as(log_probs), atol=1e-9)


@losses
@STEADY
@given(problem=problems(), shift=numbers)
def test_adding_a_constant_to_all_doc_scores_changes_nothing(
    nll: Callable[[Tensor, Tensor, Tensor], Tensor], problem: tuple[Tensor, Tensor], shift: float
) -> None:
    scores, log_probs = problem
    mask = torch.ones(1, log_probs.shape[1], dtype=torch.bool)
    one = nll(log_probs[None], marginal.doc_log_prior(scores)[None], mask)
    other = nll(log_probs[None], marginal.doc_log_prior(scores + shift)[None], mask)
    assert torch.allclose(one, other, atol=1e-9)


@losses
@STEADY
@given(problem=problems(), padding=st.lists(st.floats(-40.0, 0.0), min_size=1, max_size=4))
def test_masked_positions_do_not_count(
    nll: Callable[[Tensor, Tensor, Tensor], Tensor], problem: tuple[Tensor, Tensor], padding: list[float]
) -> None:
    scores, log_probs = problem
    prior = marginal.doc_log_prior(scores)[None]  # (1, K)
    extra = torch.tensor(padding, dtype=torch.float64).expand(log_probs.shape[0], -1)  # (K, P)
    mask = torch.ones(1, log_probs.shape[1], dtype=torch.bool)
    padded_mask = torch.cat([mask, torch.zeros(1, len(padding), dtype=torch.bool)], dim=1)
    padded = torch.cat([log_probs, extra], dim=1)[None]  # (1, K, T + P)
    assert torch.allclose(nll(padded, prior, padded_mask), nll(log_probs[None], prior, mask))


@STEADY
@given(problem=problems())
def test_one_token_makes_the_two_models_one(problem: tuple[Tensor, Tensor]) -> None:
    scores, log_probs = problem
    prior = marginal.doc_log_prior(scores)[None]
    mask = torch.ones(1, 1, dtype=torch.bool)
    first = log_probs[None, :, :1]  # (1, K, 1)
    assert torch.allclose(
        marginal.rag_token_nll(first, prior, mask), marginal.rag_sequence_nll(first, prior, mask), atol=1e-12
    )


@STEADY
@given(problem=problems())
def test_the_last_of_the_running_marginals_is_the_answers(problem: tuple[Tensor, Tensor]) -> None:
    scores, log_probs = problem
    prior = marginal.doc_log_prior(scores)
    mask = torch.ones(1, log_probs.shape[1], dtype=torch.bool)
    running = marginal.sequence_marginal(log_probs, prior)  # (T,)
    assert torch.allclose(-running[-1:], marginal.rag_sequence_nll(log_probs[None], prior[None], mask))
    assert bool((running.diff() <= 1e-9).all()), "a longer answer is never likelier"


@losses
@settings(STEADY, max_examples=20)
@given(problem=problems())
def test_gradients_agree_with_finite_differences(
    nll: Callable[[Tensor, Tensor, Tensor], Tensor], problem: tuple[Tensor, Tensor]
) -> None:
    """With respect to the doc_scores, which train the question encoder, and to the generator's log-probs."""
    scores, log_probs = problem
    # a few units of one another: far from it, a difference of 1e-6 is lost in rounding
    scores = (scores / 10.0)[None].requires_grad_()
    log_probs = (log_probs / 10.0)[None].requires_grad_()
    mask = torch.ones(1, log_probs.shape[-1], dtype=torch.bool)
    mask[0, -1] = log_probs.shape[-1] == 1
    assert torch.autograd.gradcheck(
        lambda one, other: nll(other, marginal.doc_log_prior(one), mask), (scores, log_probs)
    )


def test_the_gradient_of_the_doc_scores_is_prior_minus_posterior() -> None:
    """-d log p(y | x) / d score_z = p(z | x) - p(z | x, y): the question moves towards the passages that answered."""
    scores = DOC_SCORES.clone().requires_grad_()
    mask = torch.ones(1, 2, dtype=torch.bool)
    marginal.rag_sequence_nll(LIKELIHOOD.log()[None], marginal.doc_log_prior(scores)[None], mask).sum().backward()
    # prior 0.75, 0.25; posterior 0.075 / 0.095, 0.02 / 0.095
    assert scores.grad is not None
    assert scores.grad.tolist() == pytest.approx([0.75 - 0.075 / 0.095, 0.25 - 0.02 / 0.095])


def test_impossible_under_one_passage_is_no_obstacle() -> None:
    """Fast decoding says p(y | x, z) = 0 of passages whose beam did not hold y."""
    log_probs = torch.tensor([[-1.0, -2.0], [-torch.inf, -torch.inf]], dtype=torch.float64)
    assert marginal.running_posterior(log_probs, log_prior()).exp()[:, -1].tolist() == [1.0, 0.0]
    assert float(marginal.sequence_marginal(log_probs, log_prior())[-1]) == pytest.approx(math.log(0.75) - 3.0)


def test_a_batch_is_its_rows() -> None:
    dice = torch.Generator().manual_seed(0)
    log_probs = -torch.rand(3, 4, 5, generator=dice, dtype=torch.float64) * 5  # (B, K, T)
    prior = marginal.doc_log_prior(torch.randn(3, 4, generator=dice, dtype=torch.float64))  # (B, K)
    mask = torch.arange(5)[None] < torch.tensor([5, 2, 3])[:, None]  # (B, T)
    for nll in (marginal.rag_token_nll, marginal.rag_sequence_nll):
        alone = [nll(log_probs[b : b + 1], prior[b : b + 1], mask[b : b + 1]) for b in range(3)]
        assert torch.allclose(nll(log_probs, prior, mask), torch.cat(alone))
