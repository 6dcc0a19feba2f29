"""One step of the search: the best continuations of all hypotheses of a group under its marginal.

The best are the largest of score + log sum_z p(z | x) p(y | x, z, said) over beams and vocabulary. The vocabulary is
large and few of it are chosen. So each logit is exponentiated once, the sums over z order the candidates, and only the
scores of the chosen are computed in log space.

    G groups, K passages a group, B beams, V vocabulary, C = B * V candidates, of which n are chosen
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from openbook.rag import marginal
from openbook.rag.decoder import MAX_HYPOTHESES, groups_of

# The largest of a piece stands for the piece: a first look at C / 128 numbers finds the pieces worth a second one.
PIECE = 128
# Sums over z below this have lost digits, or are zero though their logarithm is not.
SMALLEST_SUM = 1e-30


@dataclass(frozen=True, slots=True)
class Continuations:
    """The best n of each group, best first; a score of -inf is none at all."""

    scores: Tensor  # (G, n)
    sources: Tensor  # (G, n), which hypothesis is continued
    tokens: Tensor  # (G, n), by what
    log_probs: Tensor  # (G, n, K), what each passage gives the token


def best_continuations(
    logits: Tensor, log_prior: Tensor, scores: Tensor, count: int, *, excluded: int | None = None
) -> Continuations:
    """The best `count` for logits (G, K, B, V), log_prior (G, K) and the hypotheses' scores so far (G, B).

    `excluded` is a token that may not come now; the others keep the probability that they have. Fewer than `count`
    come back where there are fewer in all.
    """
    groups, n_docs, beams, vocabulary = logits.shape
    count = min(count, beams * vocabulary)
    best_score = scores.amax(dim=-1, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)  # (G, 1)
    weights = (log_prior[..., None] + (scores - best_score)[:, None]).exp()  # (G, K, B)
    joint = logits.new_zeros(groups, beams, vocabulary)
    norms = logits.new_empty(groups, n_docs, beams)  # log sum exp of the logits
    for some in groups_of(range(n_docs), MAX_HYPOTHESES // (groups * beams)):
        docs = slice(some.start, some.stop)
        # one pass; a bare exponential is slow where the result is too small for a normal float32
        shares = torch.softmax(logits[:, docs], dim=-1)  # (G, K', B, V)
        joint += torch.matmul(weights[:, docs].transpose(1, 2)[:, :, None], shares.transpose(1, 2))[:, :, 0]
        # from the likeliest token's share
        norms[:, docs] = logits[:, docs].amax(dim=-1) - shares.amax(dim=-1).log()
    if excluded is not None:
        joint[..., excluded] = 0.0
    values, places = _largest(joint.flatten(1), count)  # (G, n)
    if bool((values < SMALLEST_SUM).any()):
        places = _largest_logarithms(logits, norms, log_prior, scores, count, excluded)
    group = torch.arange(groups, device=logits.device)[:, None]  # (G, 1)
    sources, tokens = places // vocabulary, places % vocabulary  # (G, n)
    log_probs = logits[group, :, sources, tokens] - norms[group, :, sources]  # (G, n, K)
    sums = scores[group, sources] + torch.logsumexp(log_probs + log_prior[:, None], dim=-1)  # (G, n)
    if excluded is not None:
        sums = sums.masked_fill(tokens == excluded, -torch.inf)
    sums, order = sums.sort(dim=1, descending=True, stable=True)  # (G, n)
    return Continuations(sums, sources[group, order], tokens[group, order], log_probs[group, order])


def _largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row and their places: (G, C) -> two of (G, n). They lie in at most n pieces."""
    groups, candidates = values.shape
    pieces = candidates // PIECE
    if pieces <= count:
        best = values.topk(count, dim=1)
        return best.values, best.indices
    rest = torch.arange(pieces * PIECE, candidates, device=values.device).expand(groups, -1)  # (G, C mod 128)
    fullest = values[:, : pieces * PIECE].view(groups, pieces, PIECE).amax(dim=-1).topk(count, dim=1).indices  # (G, n)
    within = fullest[..., None] * PIECE + torch.arange(PIECE, device=values.device)  # (G, n, 128)
    places = torch.cat([within.flatten(1), rest], dim=1)  # (G, n * 128 + C mod 128)
    best = values.gather(1, places).topk(count, dim=1)
    return best.values, places.gather(1, best.indices)


def _largest_logarithms(
    logits: Tensor, norms: Tensor, log_prior: Tensor, scores: Tensor, count: int, excluded: int | None
) -> Tensor:
    """The same in log space throughout, for candidates that are too unlikely for a float32: places (G, n)."""
    of_beams = [
        score[:, None] + marginal.token_marginal(of_beam - norm[..., None], log_prior)  # (G, V)
        for score, of_beam, norm in zip(scores.unbind(1), logits.unbind(2), norms.unbind(2), strict=True)
    ]
    sums = torch.stack(of_beams, dim=1)  # (G, B, V)
    if excluded is not None:
        sums[..., excluded] = -torch.inf
    return sums.flatten(1).topk(count, dim=1).indices
