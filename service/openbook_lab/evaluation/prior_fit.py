"""One prior from two scores: weights of inner products and of BM25 scores, fitted by the paper's own loss.

The prior is the softmax over the top K of dense * inner product + bm25 * BM25 score. Section 2.4 minimises
-log p(y | x); so does the fit, while the generator's p(y_i | x, z, y_<i) stay as they are. Which passages are the top K
changes with the weights and has no gradient, so that the fit only compares losses.

    Q questions, C candidates a question, K = n_docs, T tokens of the answer
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from openbook.entities import PriorWeights
from openbook.rag.marginal import doc_log_prior, rag_sequence_nll, rag_token_nll

DIGITS = 4
# Powers of two around a weight that spreads a question's scores by one: the coarse grid.
EXPONENTS = range(-6, 7)
STARTS = 3
# Eighths of a power of two: from a sixteenth of a prior to sixteen times as much.
SCALES = range(-32, 33)
# Of a step in powers of two: the search ends below the smallest.
LARGEST_STEP, SMALLEST_STEP = 0.5, 1 / 256
MOST_MOVES = 200
DIRECTIONS = tuple(step for step in product((-1, 0, 1), repeat=2) if any(step))


DENSE_ALONE, BM25_ALONE = PriorWeights(1.0, 0.0), PriorWeights(0.0, 1.0)
ALONE = {"dense alone": DENSE_ALONE, "BM25 alone": BM25_ALONE}


@dataclass(frozen=True, slots=True)
class CandidateReadings:
    """Each candidate's two scores, and what the generator makes of an answer after reading it; frozen."""

    dense: Tensor  # (Q, C)
    bm25: Tensor  # (Q, C)
    there: Tensor  # (Q, C), False on padding
    token_log_probs: Tensor  # (Q, C, T)
    mask: Tensor  # (Q, T), False on padding

    @classmethod
    def of(
        cls,
        dense: Sequence[Sequence[float]],
        bm25: Sequence[Sequence[float]],
        token_log_probs: Sequence[Sequence[Sequence[float]]],
    ) -> "CandidateReadings":
        """From lists of any length: by question and candidate, and token_log_probs by token, too."""
        scores = [torch.tensor(of_question, dtype=torch.float64) for of_question in dense]  # Q of (C,)
        tokens = [torch.tensor(one, dtype=torch.float64) for one in token_log_probs]  # Q of (C, T)
        width = max(len(one) for one in scores)
        length = max(one.shape[1] for one in tokens)
        padded = torch.zeros(len(tokens), width, length, dtype=torch.float64)  # (Q, C, T)
        mask = torch.zeros(len(tokens), length, dtype=torch.bool)  # (Q, T)
        for number, one in enumerate(tokens):
            padded[number, : one.shape[0], : one.shape[1]] = one
            mask[number, : one.shape[1]] = True
        return cls(
            pad_sequence(scores, batch_first=True),
            pad_sequence([torch.tensor(one, dtype=torch.float64) for one in bm25], batch_first=True),
            pad_sequence([torch.ones(len(one), dtype=torch.bool) for one in scores], batch_first=True),
            padded,
            mask,
        )

    def top(self, weights: PriorWeights, n_docs: int) -> tuple[Tensor, Tensor]:
        """The best K candidates and their doc_scores, both (Q, K); a missing one has -inf. Of equal ones the first."""
        scores = weights.score(self.dense, self.bm25)  # (Q, C)
        best = scores.masked_fill(~self.there, -torch.inf).sort(dim=1, descending=True, stable=True)
        return best.indices[:, :n_docs], best.values[:, :n_docs]

    def nll(self, weights: PriorWeights, n_docs: int) -> tuple[Tensor, Tensor]:
        """-log p(y | x) of each question over its top K, of RAG-Token and of RAG-Sequence: (Q,) and (Q,)."""
        chosen, doc_scores = self.top(weights, n_docs)  # (Q, K)
        log_prior = doc_log_prior(doc_scores)  # (Q, K)
        index = chosen[..., None].expand(-1, -1, self.token_log_probs.shape[-1])  # (Q, K, T)
        read = self.token_log_probs.gather(1, index)  # (Q, K, T)
        return rag_token_nll(read, log_prior, self.mask), rag_sequence_nll(read, log_prior, self.mask)

    def loss(self, weights: PriorWeights, n_docs: int) -> float:
        """The mean over questions of half of each."""
        token, sequence = self.nll(weights, n_docs)
        return float((token + sequence).mean() / 2)


def fit_prior(books: Sequence[CandidateReadings], n_docs: int) -> PriorWeights:
    """The weights, rounded to `DIGITS`, with the smallest loss that is found; the same ones again for the same input.

    The loss is the mean over the questions of all books. Weights with which one book does worse than with its inner
    products alone are left out: no book pays for what another gains.

    A grid of powers of two comes first, with 0 for either score. From its best points, from the inner products alone
    and from BM25 alone, steps in log space go down, half as long where none does: the search is sure to end. The loss
    is never above that of the inner products alone.
    """
    n_questions = sum(len(book.dense) for book in books)
    limits = [book.loss(DENSE_ALONE, n_docs) for book in books]

    def loss(weights: PriorWeights) -> float:
        losses = [book.loss(weights, n_docs) for book in books]
        if any(mine > limit for mine, limit in zip(losses, limits, strict=True)):
            return math.inf
        return sum(len(book.dense) * mine for book, mine in zip(books, losses, strict=True)) / n_questions

    dense_spread = fmean(_spread(book, book.dense) for book in books)
    bm25_spread = fmean(_spread(book, book.bm25) for book in books)
    both = product(_powers(dense_spread), _powers(bm25_spread))
    grid = [PriorWeights(dense, bm25) for dense, bm25 in both if dense or bm25]
    starts = [*sorted(grid, key=loss)[:STARTS], DENSE_ALONE, BM25_ALONE]
    found = [rounded(_descend(loss, start)) for start in starts]
    return min((one for one in (*found, DENSE_ALONE, BM25_ALONE) if one.dense or one.bm25), key=loss)


def fit_scale(book: CandidateReadings, prior: PriorWeights, n_docs: int) -> float:
    """The factor of the prior with the smallest loss, of equal ones the nearest to 1. Passages keep their order."""
    factors: list[float] = sorted((2.0 ** (power / 8) for power in SCALES), key=lambda one: abs(math.log(one)))
    return min(factors, key=lambda one: book.loss(scaled(prior, one), n_docs))


def alike(book: CandidateReadings) -> PriorWeights:
    """The weights with which both scores spread a question's candidates by one."""
    dense, bm25 = (_spread(book, scores) or 1.0 for scores in (book.dense, book.bm25))
    return PriorWeights(1 / dense, 1 / bm25)


def scaled(prior: PriorWeights, factor: float) -> PriorWeights:
    return PriorWeights(prior.dense * factor, prior.bm25 * factor)


def rounded(weights: PriorWeights) -> PriorWeights:
    return PriorWeights(round(weights.dense, DIGITS), round(weights.bm25, DIGITS))


def _spread(book: CandidateReadings, scores: Tensor) -> float:
    """The standard deviation of a question's scores (Q, C), on average."""
    count = book.there.sum(dim=1, keepdim=True)  # (Q, 1)
    away = (scores - scores.sum(dim=1, keepdim=True) / count).masked_fill(~book.there, 0.0)  # (Q, C)
    return float((away.square().sum(dim=1) / count[:, 0]).sqrt().mean())


def _powers(spread: float) -> list[float]:
    """0, and the grid's weights of scores with this spread."""
    return [0.0, *(2.0**exponent / (spread or 1.0) for exponent in EXPONENTS)]


def _descend(loss: Callable[[PriorWeights], float], start: PriorWeights) -> PriorWeights:
    best, least = start, loss(start)
    step = LARGEST_STEP
    for _ in range(MOST_MOVES):
        tried = [PriorWeights(best.dense * 2 ** (step * d), best.bm25 * 2 ** (step * b)) for d, b in DIRECTIONS]
        losses = [loss(one) for one in tried]
        if min(losses) < least:
            least = min(losses)
            best = tried[losses.index(least)]
        elif step > SMALLEST_STEP:
            step /= 2
        else:
            break
    return best
