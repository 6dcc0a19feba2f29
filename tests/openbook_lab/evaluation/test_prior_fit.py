"""The two weights of the prior: the loss in plain loops, data that known weights made, and either score alone."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from openbook.entities import PriorWeights
from openbook_lab.evaluation.prior_fit import (
    BM25_ALONE,
    DENSE_ALONE,
    CandidateReadings,
    fit_prior,
)

Drawn = tuple[list[list[float]], list[list[float]], list[list[list[float]]]]


def drawn(seed: int, questions: int = 6) -> Drawn:
    """Scores of both kinds and log-probs of questions with 3 to 6 candidates, whose answers have 1 to 3 tokens."""
    generator = torch.Generator().manual_seed(seed)
    dense, bm25, log_probs = [], [], []
    for number in range(questions):
        count, length = 3 + number % 4, 1 + number % 3
        dense.append((10 * torch.rand(count, generator=generator)).tolist())
        bm25.append((5 * torch.rand(count, generator=generator)).tolist())
        log_probs.append((-6 * torch.rand(count, length, generator=generator)).tolist())
    return dense, bm25, log_probs


def test_the_loss_is_the_one_of_plain_loops() -> None:
    dense, bm25, log_probs = drawn(0)
    weights = PriorWeights(0.4, 1.3)
    losses = []
    for of_dense, of_bm25, read in zip(dense, bm25, log_probs, strict=True):
        scores = [0.4 * d + 1.3 * b for d, b in zip(of_dense, of_bm25, strict=True)]
        top = sorted(range(len(scores)), key=lambda z: -scores[z])[:4]
        total = sum(math.exp(scores[z]) for z in top)
        weighed = [(math.exp(scores[z]) / total, read[z]) for z in top]
        by_token = [sum(p * math.exp(said[i]) for p, said in weighed) for i in range(len(read[0]))]
        token = -sum(map(math.log, by_token))
        sequence = -math.log(sum(p * math.exp(sum(said)) for p, said in weighed))
        losses.append((token + sequence) / 2)
    found = CandidateReadings.of(dense, bm25, log_probs).loss(weights, 4)
    assert found == pytest.approx(sum(losses) / len(losses), rel=1e-12)


def test_of_equal_candidates_the_first_is_taken_and_a_missing_one_never() -> None:
    readings = CandidateReadings.of([[1.0, 2.0, 2.0], [-5.0]], [[0.0] * 3, [0.0]], [[[-1.0]] * 3, [[-1.0]]])
    places, doc_scores = readings.top(DENSE_ALONE, 2)
    assert places[0].tolist() == [1, 2]
    assert (places[1, 0].item(), doc_scores[1].tolist()) == (0, [-5.0, -math.inf])


@pytest.mark.parametrize("known", [PriorWeights(0.8, 0.3), PriorWeights(0.1, 2.0)])
def test_the_weights_that_made_the_data_are_found(known: PriorWeights) -> None:
    generator = torch.Generator().manual_seed(3)
    dense, bm25 = (2 * torch.randn(2000, 5, generator=generator, dtype=torch.float64) for _ in range(2))  # (Q, C)
    prior = torch.softmax(known.dense * dense + known.bm25 * bm25, dim=1)
    says = torch.multinomial(prior, 1, generator=generator)  # (Q, 1), the only passage with the answer
    log_probs = torch.full((2000, 5, 1), -40.0, dtype=torch.float64).scatter(1, says[..., None], 0.0)
    found = fit_prior([CandidateReadings.of(dense.tolist(), bm25.tolist(), log_probs.tolist())], 5)
    assert found.dense == pytest.approx(known.dense, abs=0.05, rel=0.07)
    assert found.bm25 == pytest.approx(known.bm25, abs=0.05, rel=0.07)


@settings(max_examples=3)
@given(st.integers(0, 10_000), st.integers(1, 6))
def test_the_fit_is_never_worse_than_one_score_alone(seed: int, n_docs: int) -> None:
    readings = CandidateReadings.of(*drawn(seed))
    found = fit_prior([readings], n_docs)
    assert min(found.dense, found.bm25) >= 0 < max(found.dense, found.bm25)
    assert found == PriorWeights(round(found.dense, 4), round(found.bm25, 4))
    dense, bm25 = (readings.loss(one, n_docs) for one in (DENSE_ALONE, BM25_ALONE))
    assert readings.loss(found, n_docs) <= min(dense, bm25)


@settings(max_examples=3)
@given(st.integers(0, 10_000))
def test_no_book_does_worse_than_with_its_inner_products_alone(seed: int) -> None:
    books = [CandidateReadings.of(*drawn(seed + book, questions)) for book, questions in enumerate((2, 9, 4))]
    found = fit_prior(books, 3)
    for book in books:
        assert book.loss(found, 3) <= book.loss(DENSE_ALONE, 3)


def test_a_book_that_bm25_misleads_bounds_what_another_gains() -> None:
    # in the large book BM25 tells where the answer is; in the small one it points elsewhere
    gains = CandidateReadings.of([[1.0, 1.2]] * 40, [[4.0, 0.0]] * 40, [[[-0.1], [-9.0]]] * 40)
    loses = CandidateReadings.of([[3.0, 0.0]] * 4, [[0.0, 1.0]] * 4, [[[-0.1], [-9.0]]] * 4)
    alone, both = fit_prior([gains], 2), fit_prior([gains, loses], 2)
    assert loses.loss(alone, 2) > loses.loss(DENSE_ALONE, 2) >= loses.loss(both, 2)
    assert gains.loss(both, 2) < gains.loss(DENSE_ALONE, 2)


def test_a_score_that_misleads_has_weight_zero() -> None:
    # the passage with the answer has the most of one score and the least of the other
    right = [[5.0, 1.0, 0.0]] * 4
    readings = CandidateReadings.of(right, [[0.0, 3.0, 4.0]] * 4, [[[-0.1], [-9.0], [-9.0]]] * 4)
    found = fit_prior([readings], 2)
    assert found.bm25 == 0.0 < found.dense
    assert fit_prior([readings], 2) == found
