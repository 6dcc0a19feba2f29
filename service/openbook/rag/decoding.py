"""Decoding (section 2.5): RAG-Token by one beam search over the marginal, RAG-Sequence thorough and fast.

One beam search serves all. It searches G groups of rows: a group of RAG-Token is a question with its K passages,
whose next token is drawn from the marginal; a group of RAG-Sequence is a single passage, whose marginal is its own
likelihood. One beam is greedy decoding.

    G groups, K passages a group, B beams, V vocabulary, T tokens so far; R = G * K rows of the generator.

The search: each step extends every live hypothesis by every token and looks at the best 2B by summed log-prob. Those
among the first B that end are finished; the best B that do not end live on. Scores only fall, so a group is done when
it holds B finished ones and none alive scores above the worst of them: what is found is what an endless search would
find. It leaves the batch then. At `max_new_tokens` the living are taken as they are. No length normalisation: a score
is log p(y | x).

A checkpoint may ask for some tokens at least (`min_length` of transformers). A shorter answer is then no candidate;
the others keep the probability that they have, nothing is shared out anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from openbook.entities import Hypothesis
from openbook.rag import marginal
from openbook.rag.continuations import best_continuations
from openbook.rag.decoder import BetweenSteps, DecoderState
from openbook.rag.generator import EncodedPassages, Generator


@dataclass(frozen=True, slots=True)
class _Found:
    """A hypothesis with the log-probs that each passage of its group gave its tokens."""

    token_ids: tuple[int, ...]
    log_prob: float
    token_log_probs: Tensor  # (K, T)


def rag_token(
    generator: Generator,
    encoded: EncodedPassages,
    log_prior: Tensor,
    *,
    num_beams: int,
    max_new_tokens: int,
    between_steps: BetweenSteps,
    start: DecoderState | None = None,
) -> list[tuple[Hypothesis, ...]]:
    """The best `num_beams` answers of each question under RAG-Token: log_prior (Q, K) -> Q tuples, best first.

    `start` is what `generator.start(encoded)` gave, where the caller has it already; it is used up.
    """
    state = start or generator.start(encoded)
    found = _search(state, log_prior, generator, num_beams, max_new_tokens, between_steps, log_prior.shape[0])
    return [
        tuple(_token_hypothesis(one, log_prior[question]) for one in of_question)
        for question, of_question in enumerate(found)
    ]


def rag_sequence(
    generator: Generator,
    encoded: EncodedPassages,
    log_prior: Tensor,
    *,
    num_beams: int,
    max_new_tokens: int,
    thorough: bool,
    between_steps: BetweenSteps,
    start: DecoderState | None = None,
) -> list[tuple[Hypothesis, ...]]:
    """The answers of each question under RAG-Sequence: log_prior (Q, K) -> Q tuples, best first.

    `start` as for `rag_token`.

    A beam search for each passage gives the candidates Y. Thorough decoding scores every y of Y with every passage;
    fast decoding takes p(y | x, z) as 0 where the beam of z did not hold y. So does, to be done soon, a question for
    which nobody waits any more.
    """
    n_questions, n_docs = log_prior.shape
    alone = log_prior.new_zeros(n_questions * n_docs, 1)  # (R, 1): a passage alone is certain
    start = start or generator.start(encoded)
    every = start.branch(range(n_questions * n_docs))
    beams = _search(every, alone, generator, num_beams, max_new_tokens, between_steps, n_questions)
    answers = []
    for question in range(n_questions):
        rows = range(question * n_docs, (question + 1) * n_docs)
        # first-come order keeps the candidates' order, and so the answer, the same from run to run
        candidates = list(dict.fromkeys(one.token_ids for row in rows for one in beams[row]))
        if thorough and question not in (between_steps() or ()):
            per_passage = start.branch(rows).follow(candidates, between_steps)
        else:
            per_passage = [_beam_log_probs([beams[row] for row in rows], candidate) for candidate in candidates]
        hypotheses = [
            _sequence_hypothesis(candidate, token_log_probs.to(log_prior), log_prior[question])
            for candidate, token_log_probs in zip(candidates, per_passage, strict=True)
        ]
        answers.append(tuple(sorted(hypotheses, key=lambda one: -one.log_prob)))
    return answers


def score_targets(
    generator: Generator,
    encoded: EncodedPassages,
    log_prior: Tensor,
    targets: Sequence[tuple[int, ...]],
    *,
    sequence: bool,
    between_steps: BetweenSteps,
) -> tuple[Hypothesis, ...]:
    """log p(target | x) of given targets (end-of-sequence included) for one question: log_prior (K,)."""
    build = _sequence_hypothesis if sequence else _scored_token_hypothesis
    per_passage = generator.start(encoded).follow(targets, between_steps)
    return tuple(
        build(target, token_log_probs.to(log_prior), log_prior)
        for target, token_log_probs in zip(targets, per_passage, strict=True)
    )


def empty_log_prob(start: DecoderState, log_prior: Tensor, eos: int) -> Tensor:
    """log p(empty answer | x) of each question, before anything is decoded: log_prior (Q, K) -> (Q,).

    One token, the end, so that RAG-Token and RAG-Sequence agree on it (section 2.1). A checkpoint that was trained to
    say nothing of a passage that does not answer says so how likely it is that none of them does.
    """
    logits = start.logits[:, 0]  # (Q * K, V)
    log_probs = (logits[:, eos] - torch.logsumexp(logits, dim=-1)).view(log_prior.shape)  # (Q, K)
    return marginal.token_marginal(log_probs.to(log_prior)[..., None], log_prior)[..., 0]  # (Q,)


# --- the search --------------------------------------------------------------------------------------------


def _search(
    state: DecoderState,
    log_prior: Tensor,
    generator: Generator,
    num_beams: int,
    max_new_tokens: int,
    between_steps: BetweenSteps,
    n_questions: int,
) -> list[list[_Found]]:
    """Beam search over each group's marginal: log_prior (G, K) -> G lists of at most B, best first.

    A group that is done leaves, and its rows are computed no more. So do those of a question for which nobody waits,
    with what they have by then.
    """
    groups, n_docs = log_prior.shape
    device = log_prior.device
    left = list(range(groups))  # the numbers of the groups that are searched; from here on G is how many they are
    scores = log_prior.new_zeros(groups, 1)  # (G, B), one hypothesis before the first token
    tokens = torch.empty(groups, 1, 0, dtype=torch.long, device=device)  # (G, B, T)
    history = log_prior.new_empty(groups, 1, n_docs, 0)  # (G, B, K, T)
    finished: list[list[_Found]] = [[] for _ in range(groups)]
    for step in range(max_new_tokens):
        unwanted = between_steps() or ()
        beams, vocabulary = state.logits.shape[1:]
        best = best_continuations(
            state.logits.view(len(left), n_docs, beams, vocabulary).to(log_prior),
            log_prior,
            scores,
            2 * num_beams,
            excluded=generator.eos if step < generator.shortest_answer else None,
        )
        sources, chosen = best.sources, best.tokens  # (G, 2B)
        group = torch.arange(len(left), device=device)[:, None]  # (G, 1)
        tokens = torch.cat([tokens[group, sources], chosen[..., None]], dim=-1)  # (G, 2B, T + 1)
        history = torch.cat([history[group, sources], best.log_probs[..., None]], dim=-1)  # (G, 2B, K, T + 1)
        ends = chosen == generator.eos  # (G, 2B)
        for g, b in ends[:, :num_beams].nonzero().tolist():
            if best.scores[g, b] > -torch.inf:
                found = _found(tokens[g, b], best.scores[g, b], history[g, b])
                finished[left[g]] = _best([*finished[left[g]], found], num_beams)
        # those that end sink below all others
        order = best.scores.masked_fill(ends, -torch.inf).topk(min(num_beams, ends.shape[1]), dim=1)  # (G, <= B)
        # a small vocabulary leaves fewer than B at first: the missing are dead copies, so that B stays B
        missing = num_beams - order.indices.shape[1]
        scores = F.pad(order.values, (0, missing), value=-torch.inf)  # (G, B)
        kept = F.pad(order.indices, (0, missing))  # (G, B)
        sources, tokens, history = sources.gather(1, kept), tokens[group, kept], history[group, kept]  # (G, B, ...)
        going_on = []
        for g, best_alive in enumerate(scores[:, 0].tolist()):  # sorted, best first
            held = finished[left[g]]
            if len(held) == num_beams and best_alive <= held[-1].log_prob:
                continue
            if step + 1 < max_new_tokens and left[g] * n_questions // groups not in unwanted:
                going_on.append(g)
                continue
            alive = [b for b in range(num_beams) if scores[g, b] > -torch.inf]
            finished[left[g]] = _best(
                [*held, *(_found(tokens[g, b], scores[g, b], history[g, b]) for b in alive)], num_beams
            )
        if not going_on:
            break
        if len(going_on) < len(left):
            state = state.branch([g * n_docs + k for g in going_on for k in range(n_docs)])
            left = [left[g] for g in going_on]
            log_prior, scores, history = log_prior[going_on], scores[going_on], history[going_on]
            sources, tokens = sources[going_on], tokens[going_on]
        state.advance(sources.repeat_interleave(n_docs, dim=0), tokens[..., -1].repeat_interleave(n_docs, dim=0))
    return finished


def _best(found: list[_Found], count: int) -> list[_Found]:
    return sorted(found, key=lambda one: -one.log_prob)[:count]


def _found(tokens: Tensor, score: Tensor, history: Tensor) -> _Found:
    return _Found(tuple(tokens.tolist()), float(score), history)


# --- what passages say of given tokens ---------------------------------------------------------------------


def _beam_log_probs(beams: Sequence[list[_Found]], candidate: tuple[int, ...]) -> Tensor:
    """(K, T): what each passage's own beam gave the candidate, -inf throughout where the beam did not hold it."""
    held = [next((one.token_log_probs[0] for one in beam if one.token_ids == candidate), None) for beam in beams]
    some = next(row for row in held if row is not None)
    return torch.stack([torch.full_like(some, -torch.inf) if row is None else row for row in held])


# --- hypotheses --------------------------------------------------------------------------------------------


def _token_hypothesis(found: _Found, log_prior: Tensor) -> Hypothesis:
    step_marginals = marginal.token_marginal(found.token_log_probs, log_prior)  # (T,)
    posterior = marginal.token_posterior(found.token_log_probs, log_prior).exp()  # (K, T)
    return Hypothesis(found.token_ids, found.log_prob, tuple(step_marginals.tolist()), _columns(posterior))


def _scored_token_hypothesis(token_ids: tuple[int, ...], token_log_probs: Tensor, log_prior: Tensor) -> Hypothesis:
    step_marginals = marginal.token_marginal(token_log_probs, log_prior)  # (T,)
    return _token_hypothesis(_Found(token_ids, float(step_marginals.sum()), token_log_probs), log_prior)


def _sequence_hypothesis(token_ids: tuple[int, ...], token_log_probs: Tensor, log_prior: Tensor) -> Hypothesis:
    running = marginal.sequence_marginal(token_log_probs, log_prior)  # (T,)
    per_token = torch.cat([running[:1], running.diff()])  # (T,), sums to log p(y | x)
    posterior = marginal.running_posterior(token_log_probs, log_prior).exp()  # (K, T)
    return Hypothesis(token_ids, float(running[-1]), tuple(per_token.tolist()), _columns(posterior))


def _columns(posterior: Tensor) -> tuple[tuple[float, ...], ...]:
    """(K, T) -> T tuples of K."""
    return tuple(tuple(column) for column in posterior.T.tolist())
