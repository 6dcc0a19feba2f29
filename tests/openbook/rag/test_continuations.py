"""The best continuations of a step, against sorting every candidate in log space."""

import math

import pytest
import torch
from torch import Tensor

from openbook.rag import continuations, marginal
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


def test_what_is_too_unlikely_for_a_number_is_still_ranked() -> None:
    """After two tokens that are all but certain, the third best is e^-200 and the fourth e^-300."""
    logits = torch.full((1, 1, 1, 400), -500.0)
    logits[0, 0, 0, [7, 8, 9, 10]] = torch.tensor([0.0, -1.0, -200.0, -300.0])
    found = best_continuations(logits, torch.zeros(1, 1), torch.zeros(1, 1), 4)
    assert found.tokens.tolist() == [[7, 8, 9, 10]]
    certain = math.log(1 + math.exp(-1))
    assert found.scores[0].tolist() == pytest.approx([-certain, -1 - certain, -200 - certain, -300 - certain])


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


def test_pieces_hold_the_largest_wherever_they_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuations, "PIECE", 8)
    values = torch.zeros(1, 100)
    for places in ([96, 97, 98, 99], [0, 1, 2, 3], [7, 8, 50, 99]):
        values.zero_()
        values[0, places] = torch.tensor([4.0, 3.0, 2.0, 1.0])
        assert continuations._largest(values, 4)[1].tolist() == [places]
