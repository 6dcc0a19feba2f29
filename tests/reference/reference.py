"""RAG as Lewis et al. 2020 writes it, in plain loops: what the fast decoders are held against.

Every probability comes from a full forward pass of transformers' own model in float64: the whole passage and the
whole prefix, one passage at a time at its own length. There is no key/value cache, no batch, no padding, no mask and
no line shared with service/. Numbers that were computed once are kept in a table, which changes nothing but the time.

    x question, z passage, y answer, K passages; `scores` their inner products with the question
    p(z | x)            softmax of the scores over the K (section 2.2)
    p(y_i | x, z, y_<i) softmax of the generator's last row of logits (section 2.3)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import torch
from torch import nn

Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Found:
    """An answer with its end-of-sequence, where it ended, and its log-probability."""

    tokens: Tokens
    log_prob: float


@dataclass
class Reference:
    """One question with its K passages. `inputs[k]` are passage k's input tokens, `prefix` opens every answer."""

    model: nn.Module
    inputs: Sequence[Sequence[int]]
    scores: Sequence[float]
    prefix: Tokens
    eos: int
    table: dict[tuple[int, Tokens], list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert next(self.model.parameters()).dtype == torch.float64
        assert len(self.inputs) == len(self.scores)

    # --- the two models ------------------------------------------------------------------------------------

    def log_prior(self) -> list[float]:
        """log p(z | x)."""
        total = log_sum_exp(self.scores)
        return [score - total for score in self.scores]

    def next_log_probs(self, z: int, said: Tokens) -> list[float]:
        """log p(. | x, z, said) over the vocabulary."""
        if (z, said) not in self.table:
            self.table[z, said] = self.forward(z, said)[-1].tolist()
        return self.table[z, said]

    def token_log_probs(self, z: int, answer: Tokens) -> list[float]:
        """log p(y_i | x, z, y_<i) of each token of an answer, by the forward pass of section 2.5."""
        rows = self.forward(z, answer[:-1])[-len(answer) :]  # (T, V)
        return [row[token].item() for row, token in zip(rows, answer, strict=True)]

    def forward(self, z: int, said: Tokens) -> torch.Tensor:
        """The log-softmax at every position of prefix + said: (P + len(said), V)."""
        with torch.no_grad():
            logits = self.model(
                input_ids=torch.tensor([list(self.inputs[z])]),
                decoder_input_ids=torch.tensor([[*self.prefix, *said]]),
                use_cache=False,
            ).logits
        return torch.log_softmax(logits[0], dim=-1)

    # --- RAG-Token -----------------------------------------------------------------------------------------

    def token_marginal(self, said: Tokens) -> list[float]:
        """log p(. | x, said) = log sum_z p(z | x) p(. | x, z, said)."""
        prior = self.log_prior()
        per_passage = [self.next_log_probs(z, said) for z in range(len(prior))]
        return [
            log_sum_exp([prior[z] + row[token] for z, row in enumerate(per_passage)])
            for token in range(len(per_passage[0]))
        ]

    def rag_token_log_prob(self, answer: Tokens) -> float:
        """log p(y | x) = sum_i log sum_z p(z | x) p(y_i | x, z, y_<i)."""
        return sum(self.token_marginal(answer[:i])[token] for i, token in enumerate(answer))

    def rag_token_greedy(self, max_new_tokens: int) -> Found:
        """The likeliest token at each step, until it is the end-of-sequence."""
        said: Tokens = ()
        log_prob = 0.0
        while len(said) < max_new_tokens and (not said or said[-1] != self.eos):
            marginal = self.token_marginal(said)
            token = max(range(len(marginal)), key=lambda one: marginal[one])
            said += (token,)
            log_prob += marginal[token]
        return Found(said, log_prob)

    def rag_token_beam(self, num_beams: int, max_new_tokens: int) -> list[Found]:
        return beam_search(self.token_marginal, self.eos, num_beams, max_new_tokens)

    def rag_token_posterior(self, answer: Tokens) -> list[list[float]]:
        """p(z | x, y_i, y_<i) for each token i: the joint of z and y_i over the marginal of y_i."""
        prior = self.log_prior()
        columns = []
        for i, token in enumerate(answer):
            joint = [prior[z] + self.next_log_probs(z, answer[:i])[token] for z in range(len(prior))]
            marginal = self.token_marginal(answer[:i])[token]
            columns.append([math.exp(one - marginal) for one in joint])
        return columns

    # --- RAG-Sequence --------------------------------------------------------------------------------------

    def passage_beam(self, z: int, num_beams: int, max_new_tokens: int) -> list[Found]:
        """The beam search of one passage alone, with p(y | x, z)."""
        return beam_search(lambda said: self.next_log_probs(z, said), self.eos, num_beams, max_new_tokens)

    def rag_sequence_log_prob(self, answer: Tokens) -> float:
        """log p(y | x) = log sum_z p(z | x) prod_i p(y_i | x, z, y_<i)."""
        prior = self.log_prior()
        return log_sum_exp([prior[z] + sum(self.token_log_probs(z, answer)) for z in range(len(prior))])

    def thorough(self, num_beams: int, max_new_tokens: int) -> list[Found]:
        """Section 2.5: whatever any passage's beam holds is scored under every passage."""
        held = {
            found.tokens for z in range(len(self.inputs)) for found in self.passage_beam(z, num_beams, max_new_tokens)
        }
        return best_first([Found(answer, self.rag_sequence_log_prob(answer)) for answer in held])

    def fast(self, num_beams: int, max_new_tokens: int) -> list[Found]:
        """Section 2.5: p(y | x, z) counts as 0 where the beam of z does not hold y."""
        prior = self.log_prior()
        joint: dict[Tokens, list[float]] = {}
        for z in range(len(self.inputs)):
            for found in self.passage_beam(z, num_beams, max_new_tokens):
                joint.setdefault(found.tokens, []).append(prior[z] + found.log_prob)
        return best_first([Found(answer, log_sum_exp(terms)) for answer, terms in joint.items()])

    def rag_sequence_posterior(self, answer: Tokens) -> list[list[float]]:
        """p(z | x, y_1..i) after each token i."""
        prior = self.log_prior()
        columns = []
        for length in range(1, len(answer) + 1):
            joint = [prior[z] + sum(self.token_log_probs(z, answer[:length])) for z in range(len(prior))]
            marginal = log_sum_exp(joint)
            columns.append([math.exp(one - marginal) for one in joint])
        return columns

    # --- everything that can be said -----------------------------------------------------------------------

    def every_answer(self, vocabulary: Sequence[int], max_new_tokens: int) -> list[Tokens]:
        """All sequences over the vocabulary that end within max_new_tokens, or reach it without ending."""
        words = [token for token in vocabulary if token != self.eos]
        ended = [(*said, self.eos) for length in range(max_new_tokens) for said in product(words, repeat=length)]
        return ended + list(product(words, repeat=max_new_tokens))


def beam_search(
    next_log_probs: Callable[[Tokens], list[float]], eos: int, num_beams: int, max_new_tokens: int
) -> list[Found]:
    """At most `num_beams` answers, best first; a score is the plain sum of log-probs, end-of-sequence included.

    A step extends every live hypothesis by every token and looks at the 2 * num_beams best, ties going to the older
    hypothesis and then to the lower token. Of these, those among the first num_beams that end are finished, and the
    best num_beams that do not end live on. The search is over when num_beams are finished and no live one is above
    the worst of them, or at max_new_tokens, where the living count as they are.
    """
    live = [Found((), 0.0)]
    finished: list[Found] = []
    for _ in range(max_new_tokens):
        candidates = [
            (-(hypothesis.log_prob + log_prob), age, token)
            for age, hypothesis in enumerate(live)
            for token, log_prob in enumerate(next_log_probs(hypothesis.tokens))
        ]
        survivors = []
        for place, (minus, age, token) in enumerate(sorted(candidates)[: 2 * num_beams]):
            extended = Found((*live[age].tokens, token), -minus)
            if token != eos:
                survivors.append(extended)
            elif place < num_beams:
                finished.append(extended)
        live = survivors[:num_beams]
        finished = best_first(finished)[:num_beams]
        if len(finished) == num_beams and live[0].log_prob <= finished[-1].log_prob:
            return finished
    return best_first([*finished, *live])[:num_beams]


def best_first(found: Sequence[Found]) -> list[Found]:
    return sorted(found, key=lambda one: (-one.log_prob, one.tokens))


def log_sum_exp(terms: Sequence[float]) -> float:
    largest = max(terms)
    return largest + math.log(sum(math.exp(term - largest) for term in terms))
