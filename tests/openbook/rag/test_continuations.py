"""The best continuations of a step, against sorting every candidate in log space."""

import pytest
import torch
from torch import Tensor

from openbook.rag import marginal
from openbook.rag.continuations import best_continuations

GROUPS, K, BEAMS, VOCABULARY = 3, 4, 5, 700


def a_step(seed: int, spread: float) -> tuple[Tensor, Tensor, Tensor]:
    """logits (G, K, B, V), log_prior (G, K), scores (G, B)."""
    dice = torch.Generator().manual_seed(seed)
    logits = spread * torch.randn(GROUPS, K, BEAMS, VOCABULARY, generator=dice) + 3.0
    log_prior = torch.log_softmax(torch.randn(GROUPS, K, generator=dice), dim=-1)
    return logits, log_prior, -5.0 * torch.rand(GROUPS, BEAMS, generator=dice)


def every_candidate(logits: Tensor, log_prior: Tensor, scores: Tensor) -> Tensor:
    """score + log marginal in float64: (G, B, V)."""
    log_probs = torch.log_softmax(logits.double(), dim=-1).transpose(1, 2)  # (G, B, K, V)
    return scores[..., None] + marginal.token_marginal(log_probs, log_prior.double()[:, None])


# 100: most of the vocabulary, and whole passages, are too unlikely for a float32
@pytest.mark.parametrize("spread", [0.5, 4.0, 100.0])
def test_they_are_those_that_sorting_all_candidates_finds(spread: float) -> None:
    logits, log_prior, scores = a_step(1, spread)
    exact = every_candidate(logits, log_prior, scores)
    expected = exact.flatten(1).topk(10, dim=1)
    found = best_continuations(logits, log_prior, scores, 10)
    assert (found.sources * VOCABULARY + found.tokens).tolist() == expected.indices.tolist()
    assert torch.allclose(found.scores.double(), expected.values, atol=1e-4)
    log_probs = torch.log_softmax(logits.double(), dim=-1)
    for g in range(GROUPS):
        for n in range(10):
            of_passages = log_probs[g, :, found.sources[g, n], found.tokens[g, n]]
            assert torch.allclose(found.log_probs[g, n].double(), of_passages, atol=1e-3, rtol=1e-5)


def test_hypotheses_far_behind_lose_no_digits() -> None:
    logits, log_prior, scores = a_step(2, 1.0)
    scores[:, 1:] -= 500.0
    few = logits[..., :3]
    exact = every_candidate(few, log_prior, scores)
    found = best_continuations(few, log_prior, scores, 15)
    assert torch.allclose(found.scores.double(), exact.flatten(1).sort(dim=1, descending=True).values, rtol=1e-5)


def test_a_dead_hypothesis_comes_last_and_counts_as_none() -> None:
    logits, log_prior, scores = a_step(3, 1.0)
    scores[:, 1:] = -torch.inf
    found = best_continuations(logits[..., :4], log_prior, scores, 10)
    assert (found.sources[:, :4] == 0).all()
    assert (found.scores[:, :4] > -torch.inf).all()
    assert (found.scores[:, 4:] == -torch.inf).all()
    all_dead = best_continuations(logits, log_prior, torch.full_like(scores, -torch.inf), 10)
    assert (all_dead.scores == -torch.inf).all()


@pytest.mark.parametrize("spread", [1.0, 100.0])
def test_an_excluded_token_leaves_the_others_their_probability(spread: float) -> None:
    logits, log_prior, scores = a_step(4, spread)
    best = int(best_continuations(logits, log_prior, scores, 1).tokens[0, 0])
    exact = every_candidate(logits, log_prior, scores)
    exact[..., best] = -torch.inf
    found = best_continuations(logits, log_prior, scores, 10, excluded=best)
    assert not (found.tokens == best).any()
    assert torch.allclose(found.scores.double(), exact.flatten(1).topk(10, dim=1).values, atol=1e-4)
