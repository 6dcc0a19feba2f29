"""Decoding (section 2.5): RAG-Token by one beam search over the marginal, RAG-Sequence thorough and fast.

One beam search serves all. It searches G groups of rows: a group of RAG-Token is a question with its K passages,
whose next token is drawn from the marginal; a group of RAG-Sequence is a single passage, whose marginal is its own
likelihood. One beam is greedy decoding.

    G groups, K passages a group, B beams, V vocabulary, T tokens so far; R = G * K rows of the generator.

Each step extends every live hypothesis by every token and looks at the best 2B by summed log-prob. Those among the
first B that end are finished; the best B that do not end live on. Scores only fall, so a group is done when it holds B
finished ones and none alive scores above the worst of them: an endless search would find the same. The group then
leaves the batch. At `max_new_tokens` the living are taken as they are. Lengths are not normalised: a score is
log p(y | x).

A checkpoint may ask for a shortest answer (`min_length` of transformers). A shorter one is then no candidate; the
others keep their probability, nothing is normalised again.

Tokens of RAG-Token are certain before the search ends: those that all hypotheses share which may still be the best. A
greedy search is certain of each token at once. RAG-Sequence compares whole answers, and is certain of none before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

import torch
import torch.nn.functional as F
from torch import Tensor

from openbook.entities import AnswerOptions, Hypothesis, ModelKind
from openbook.rag import marginal
from openbook.rag.continuations import best_continuations
from openbook.rag.decoder import MAX_HYPOTHESES, BetweenSteps, DecoderState, SearchedState, groups_of, nothing
from openbook.rag.generator import Generator
from openbook.rag.listening import NOBODY, Certain
from openbook.rag.reading_ahead import ReadingAhead, can_read_ahead

# Passages that score targets at a time, each of them all nodes of a tree.
MAX_FOLLOWED = 10
# Rounding may lift the score of a hypothesis by less than this from one step to another.
ROUNDING = 1e-4


@dataclass(frozen=True, slots=True)
class _Found:
    """A hypothesis with the log-probs that each passage of its group gave its tokens."""

    token_ids: tuple[int, ...]
    log_prob: float
    token_log_probs: Tensor  # (K, T)


def decode(
    generator: Generator,
    start: DecoderState,
    log_prior: Tensor,
    options: AnswerOptions,
    between_steps: BetweenSteps = nothing,
    listeners: Mapping[int, Certain] = NOBODY,
    texts: Sequence[Sequence[int]] = (),
) -> list[tuple[Hypothesis, ...]]:
    """The best `options.num_answers` to each question: log_prior (Q, K) -> Q tuples, best first.

    RAG-Token has `num_beams` answers at most, RAG-Sequence as many as candidates. `start` is
    `generator.start(encoded)`, and is used up. `listeners` hear which tokens of RAG-Token's best answer are certain.
    With `texts`, `generator.texts(encoded)`, greedy RAG-Token takes fewer steps to the same answer.
    """
    if options.model == "token":
        again = start.branch(range(log_prior.numel())) if options.leave_one_out else start
        state: SearchedState = start
        if texts and options.num_beams == 1 and can_read_ahead(log_prior):
            state = ReadingAhead(start, texts, log_prior[0], generator.stops, options.max_new_tokens)
        found = _search(generator, state, log_prior, options, between_steps, range(len(log_prior)), listeners)
        answers = [
            tuple(
                _token_hypothesis(one.token_ids, one.token_log_probs, prior, one.log_prob)
                for one in of_question[: options.num_answers]
            )
            for of_question, prior in zip(found, log_prior, strict=True)
        ]
        if not options.leave_one_out:
            return answers
        return [
            (
                replace(best, without=_rag_token_without(generator, again, number, prior, options, between_steps)),
                *others,
            )
            for number, (prior, (best, *others)) in enumerate(zip(log_prior, answers, strict=True))
        ]
    return _rag_sequence(generator, start, log_prior, options, between_steps)


def score(
    start: DecoderState,
    log_prior: Tensor,
    targets: Sequence[tuple[int, ...]],
    model: ModelKind,
    between_steps: BetweenSteps = nothing,
) -> list[tuple[Hypothesis, ...]]:
    """log p(target | x) of given targets (end-of-sequence included): log_prior (Q, K) -> Q tuples of the targets."""
    build = sequence_hypothesis if model == "sequence" else _token_hypothesis
    n_docs = log_prior.shape[1]
    answers = []
    for number, prior in enumerate(log_prior):
        followed = _follow(start, _rows_of(number, n_docs), targets, between_steps)
        both = zip(targets, followed, strict=True)
        answers.append(tuple(build(target, log_probs.to(prior), prior) for target, log_probs in both))
    return answers


def empty_log_prob(start: DecoderState, log_prior: Tensor, eos: int) -> Tensor:
    """log p(empty answer | x) of each question, before anything is decoded: log_prior (Q, K) -> (Q,).

    The empty answer is one token, the end: RAG-Token and RAG-Sequence agree on it (section 2.1). For a checkpoint that
    is trained to say nothing of a passage that does not answer, this is how likely none of them does.
    """
    logits = start.logits[:, 0]  # (Q * K, V)
    log_probs = (logits[:, eos] - torch.logsumexp(logits, dim=-1)).view(log_prior.shape)  # (Q, K)
    return marginal.token_marginal(log_probs.to(log_prior)[..., None], log_prior)[..., 0]  # (Q,)


def _rag_token_without(
    generator: Generator,
    start: DecoderState,
    number: int,
    log_prior: Tensor,
    options: AnswerOptions,
    between_steps: BetweenSteps,
) -> tuple[Hypothesis, ...]:
    """RAG-Token's best answer to question `number` without each of its passages: log_prior (K,) -> K of them.

    A step of RAG-Token marginalises, so that each answer is searched again: over K - 1 passages, none read again.
    """
    n_docs = len(log_prior)
    others = [[k for k in range(n_docs) if k != left] for left in range(n_docs) if n_docs > 1]  # K of K - 1
    best: list[Hypothesis] = []
    for some in groups_of(range(len(others)), MAX_HYPOTHESES // max(1, (n_docs - 1) * options.num_beams)):
        rows = [number * n_docs + k for left in some for k in others[left]]
        priors = torch.stack([torch.log_softmax(log_prior[others[left]], dim=-1) for left in some])  # (G, K - 1)
        found = _search(generator, start.branch(rows), priors, options, between_steps, [number] * len(some))
        for left, prior, (one, *_) in zip(some, priors, found, strict=True):
            hypothesis = _token_hypothesis(one.token_ids, one.token_log_probs, prior, one.log_prob)
            columns = tuple((*column[:left], 0.0, *column[left:]) for column in hypothesis.posterior)
            best.append(replace(hypothesis, posterior=columns))
    return tuple(best)


def _rag_sequence(
    generator: Generator,
    start: DecoderState,
    log_prior: Tensor,
    options: AnswerOptions,
    between_steps: BetweenSteps,
) -> list[tuple[Hypothesis, ...]]:
    """A beam search for each passage gives the candidates Y. Thorough decoding scores every y of Y with every passage;
    fast decoding takes p(y | x, z) as 0 where the beam of z did not hold y. An abandoned question is scored fast.

    Passages are searched and scored in groups: no passage knows of another until their probabilities are summed.
    """
    n_questions, n_docs = log_prior.shape
    beams: list[list[_Found]] = []
    for rows in groups_of(range(n_questions * n_docs), MAX_HYPOTHESES // options.num_beams):
        certain = log_prior.new_zeros(len(rows), 1)  # (R', 1), the prior of a passage alone
        questions = [row // n_docs for row in rows]
        beams += _search(generator, start.branch(rows), certain, options, between_steps, questions)
    answers = []
    for number, prior in enumerate(log_prior):
        rows = _rows_of(number, n_docs)
        of_question = beams[rows.start : rows.stop]
        candidates = _candidates(of_question)
        if options.decoding == "thorough" and number not in (between_steps() or ()):
            followed = _follow(start, rows, candidates, between_steps)
        else:
            followed = [_beam_log_probs(of_question, candidate) for candidate in candidates]
        followed = [log_probs.to(prior) for log_probs in followed]  # (K, T) each
        of_candidates = dict(zip(candidates, followed, strict=True))
        best, *others = _best_candidates(candidates, of_candidates, prior, options.num_answers)
        if options.leave_one_out and n_docs > 1:
            # what a beam found does not depend on other passages: nothing is searched or scored again
            left_out = [
                _best_candidates(
                    _candidates([*of_question[:k], *of_question[k + 1 :]]), of_candidates, marginal.without(prior, k), 1
                )[0]
                for k in range(n_docs)
            ]
            best = replace(best, without=tuple(left_out))
        answers.append((best, *others))
    return answers


def _candidates(beams: Sequence[list[_Found]]) -> list[tuple[int, ...]]:
    # first-come order keeps the candidates' order, and so the answer, the same from run to run
    return list(dict.fromkeys(one.token_ids for beam in beams for one in beam))


def _best_candidates(
    candidates: Sequence[tuple[int, ...]],
    log_probs: Mapping[tuple[int, ...], Tensor],
    log_prior: Tensor,
    count: int,
) -> list[Hypothesis]:
    """The `count` best: log_probs (K, T) of each candidate, log_prior (K,)."""
    scores = {y: float(marginal.sequence_marginal(log_probs[y], log_prior)[-1]) for y in candidates}
    best = sorted(candidates, key=lambda y: -scores[y])[:count]
    return [sequence_hypothesis(y, log_probs[y], log_prior) for y in best]


def _rows_of(question: int, n_docs: int) -> range:
    return range(question * n_docs, (question + 1) * n_docs)


def _follow(
    start: DecoderState, rows: range, targets: Sequence[tuple[int, ...]], between_steps: BetweenSteps
) -> list[Tensor]:
    """log p of each token of each target under each passage of `rows`, a tensor (K, T) a target."""
    parts = [start.branch(some).follow(targets, between_steps) for some in groups_of(rows, MAX_FOLLOWED)]
    return [torch.cat(of_target) for of_target in zip(*parts, strict=True)]


# --- the search --------------------------------------------------------------------------------------------


def _search(
    generator: Generator,
    state: SearchedState,
    log_prior: Tensor,
    options: AnswerOptions,
    between_steps: BetweenSteps,
    questions: Sequence[int],
    listeners: Mapping[int, Certain] = NOBODY,
) -> list[list[_Found]]:
    """Beam search over each group's marginal: log_prior (G, K) -> G lists of at most B, best first.

    A group that is done leaves, and its rows are computed no more. The groups of an abandoned question leave as well,
    with what they have found: `questions` (G,) tells whose each group is. A question with a listener has one group.
    """
    groups, n_docs = log_prior.shape
    num_beams, max_new_tokens = options.num_beams, options.max_new_tokens
    device = log_prior.device
    left = list(range(groups))  # the numbers of the groups that are searched; from here on G counts these
    scores = log_prior.new_zeros(groups, 1)  # (G, B), one hypothesis before the first token
    tokens = torch.empty(groups, 1, 0, dtype=torch.long, device=device)  # (G, B, T)
    history = log_prior.new_empty(groups, 1, n_docs, 0)  # (G, B, K, T)
    finished: list[list[_Found]] = [[] for _ in range(groups)]
    for step in range(max_new_tokens):
        abandoned = between_steps() or ()
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
            if step + 1 < max_new_tokens and questions[left[g]] not in abandoned:
                going_on.append(g)
                continue
            alive = [b for b in range(num_beams) if scores[g, b] > -torch.inf]
            finished[left[g]] = _best(
                [*held, *(_found(tokens[g, b], scores[g, b], history[g, b]) for b in alive)], num_beams
            )
        for g, number in enumerate(left if listeners else ()):
            if (listener := listeners.get(questions[number])) is not None:
                alive = [b for b in range(num_beams) if scores[g, b] > -torch.inf] if g in going_on else []
                living = [_found(tokens[g, b], scores[g, b], history[g, b]) for b in alive]
                listener(_certain(finished[number], living, log_prior[g]))
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


def _certain(finished: Sequence[_Found], living: Sequence[_Found], log_prior: Tensor) -> Hypothesis:
    """The tokens that all hypotheses share which may still be the best, both best first: log_prior (K,)."""
    best = finished[:1]
    contenders = [*best, *(one for one in living if not best or one.log_prob > best[0].log_prob - ROUNDING)]
    places = zip(*(one.token_ids for one in contenders), strict=False)
    shared = tuple(tokens[0] for tokens in takewhile(lambda tokens: len(set(tokens)) == 1, places))
    return _token_hypothesis(shared, contenders[0].token_log_probs[:, : len(shared)], log_prior)


def _found(tokens: Tensor, score: Tensor, history: Tensor) -> _Found:
    # a copy: a view would keep the history of all groups of its step
    return _Found(tuple(tokens.tolist()), float(score), history.clone())


# --- hypotheses --------------------------------------------------------------------------------------------


def _beam_log_probs(beams: Sequence[list[_Found]], candidate: tuple[int, ...]) -> Tensor:
    """(K, T): what each passage's own beam gave the candidate, -inf throughout where the beam did not hold it."""
    held = [next((one.token_log_probs[0] for one in beam if one.token_ids == candidate), None) for beam in beams]
    some = next(row for row in held if row is not None)
    return torch.stack([torch.full_like(some, -torch.inf) if row is None else row for row in held])


def _token_hypothesis(
    token_ids: tuple[int, ...], token_log_probs: Tensor, log_prior: Tensor, log_prob: float | None = None
) -> Hypothesis:
    """token_log_probs (K, T), log_prior (K,); `log_prob` is the score of the search, where one found it."""
    per_token = marginal.token_marginal(token_log_probs, log_prior)  # (T,)
    posterior = marginal.token_posterior(token_log_probs, log_prior).exp()  # (K, T)
    log_prob = float(per_token.sum()) if log_prob is None else log_prob
    return Hypothesis(token_ids, log_prob, tuple(per_token.tolist()), _columns(posterior))


def sequence_hypothesis(token_ids: tuple[int, ...], token_log_probs: Tensor, log_prior: Tensor) -> Hypothesis:
    """RAG-Sequence's answer: token_log_probs (K, T), -inf of a passage that does not say it; log_prior (K,)."""
    running = marginal.sequence_marginal(token_log_probs, log_prior)  # (T,)
    per_token = torch.cat([running[:1], running.diff()])  # (T,), sums to log p(y | x)
    posterior = marginal.running_posterior(token_log_probs, log_prior).exp()  # (K, T)
    return Hypothesis(token_ids, float(running[-1]), tuple(per_token.tolist()), _columns(posterior))


def _columns(posterior: Tensor) -> tuple[tuple[float, ...], ...]:
    """(K, T) -> T tuples of K."""
    return tuple(tuple(column) for column in posterior.T.tolist())


def document_posterior(hypothesis: Hypothesis, model: ModelKind) -> tuple[float, ...]:
    """One number a passage. RAG-Sequence: p(z | x, y), the last column. RAG-Token has a posterior for each token and
    none for the answer: the mean over its tokens, the share of the answer that each passage accounts for. A single
    prompt has the prior in every column."""
    if model != "token":
        return hypothesis.posterior[-1]
    columns = hypothesis.posterior
    return tuple(sum(column[k] for column in columns) / len(columns) for k in range(len(columns[0])))
