"""The document as a latent variable: the equations of Lewis et al. 2020, section 2.1, in log space.

Symbols. K passages z were retrieved for a question x; y_1..y_T are the answer's tokens, V the vocabulary.
Every function is pure, takes any leading batch shape (...) and keeps the dtype it is given; float32 is enough.

    doc_scores       (..., K)      inner products of the question's and the passages' vectors
    log_prior        (..., K)      log p(z | x), over the K retrieved
    token_log_probs  (..., K, T)   log p(y_i | x, z, y_<i) of given tokens
    log_probs        (..., K, V)   log p(. | x, z, y_<i) of every next token
"""

import torch
from torch import Tensor


def doc_log_prior(doc_scores: Tensor) -> Tensor:
    """log p(z | x) = log softmax of the inner products (section 2.2): (..., K) -> (..., K)."""
    return torch.log_softmax(doc_scores, dim=-1)


def without(log_prior: Tensor, left: int) -> Tensor:
    """log p(z | x) where passage `left` was not retrieved, and so has probability 0: (..., K) -> (..., K), K > 1."""
    others = log_prior.clone()
    others[..., left] = -torch.inf
    return torch.log_softmax(others, dim=-1)


def token_marginal(log_probs: Tensor, log_prior: Tensor) -> Tensor:
    """RAG-Token's log sum_z p(z | x) p(. | x, z, y_<i): (..., K, V), (..., K) -> (..., V).

    Given token_log_probs (..., K, T), it is log p(y_i | x, y_<i) of each token: (..., T).
    """
    return torch.logsumexp(log_probs + log_prior[..., None], dim=-2)


def token_posterior(token_log_probs: Tensor, log_prior: Tensor) -> Tensor:
    """RAG-Token's log p(z | x, y_i, y_<i), the joint over the marginal of each step: (..., K, T) -> (..., K, T).

    Figure 2 of the paper. The tokens are independent given the question: each step begins at the prior again.
    """
    return torch.log_softmax(token_log_probs + log_prior[..., None], dim=-2)


def sequence_marginal(token_log_probs: Tensor, log_prior: Tensor) -> Tensor:
    """RAG-Sequence's log p(y_1..i | x) = log sum_z p(z | x) p(y_1..i | x, z), for every i: (..., K, T) -> (..., T).

    The last column is log p(y | x). Differences of neighbours are log p(y_i | x, y_<i).
    """
    return torch.logsumexp(token_log_probs.cumsum(dim=-1) + log_prior[..., None], dim=-2)


def running_posterior(token_log_probs: Tensor, log_prior: Tensor) -> Tensor:
    """RAG-Sequence's log p(z | x, y_1..i) after each token: (..., K, T) -> (..., K, T).

    One passage explains the whole answer, so evidence adds up; the last column is log p(z | x, y).
    """
    return torch.log_softmax(token_log_probs.cumsum(dim=-1) + log_prior[..., None], dim=-2)


def rag_token_nll(token_log_probs: Tensor, log_prior: Tensor, mask: Tensor) -> Tensor:
    """-log p_RAG-Token(y | x) = -sum_i log sum_z p(z | x) p(y_i | x, z, y_<i): (B, K, T), (B, K), (B, T) -> (B,).

    `mask` is True on the answer's tokens, its end-of-sequence included, and False on padding.
    """
    per_token = token_marginal(token_log_probs, log_prior)  # (B, T)
    return -per_token.masked_fill(~mask, 0.0).sum(dim=-1)  # (B,)


def rag_sequence_nll(token_log_probs: Tensor, log_prior: Tensor, mask: Tensor) -> Tensor:
    """-log p_RAG-Sequence(y | x) = -log sum_z p(z | x) prod_i p(y_i | x, z, y_<i); shapes as `rag_token_nll`."""
    per_passage = token_log_probs.masked_fill(~mask[..., None, :], 0.0).sum(dim=-1)  # (B, K)
    return -torch.logsumexp(per_passage + log_prior, dim=-1)  # (B,)
