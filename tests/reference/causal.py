"""A causal language model under the same equations: one full forward pass over the whole prompt, at its own length.

Two things that a model says in several ways count as one here. Any stop ends an answer, and stands as the first of
them. A refusal, which is some tokens with an end, is the empty answer: its whole probability goes there.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tests.reference.reference import Reference, Tokens, log_sum_exp

# As a logarithm: no probability at all. Sums and differences of infinities would be no numbers.
NEVER = -1e4


@dataclass
class CausalReference(Reference):
    """`inputs[k]` are the tokens of passage k's whole prompt; `prefix` is empty."""

    stops: Sequence[int] = ()
    refusals: Sequence[Tokens] = ()

    def forward(self, z: int, said: Tokens) -> torch.Tensor:
        with torch.no_grad():
            logits = self.model(input_ids=torch.tensor([[*self.inputs[z], *said]]), use_cache=False).logits
        log_probs = torch.log_softmax(logits[0, len(self.inputs[z]) - 1 :], dim=-1)
        rows = []
        for i, row in enumerate(log_probs.tolist()):
            end = log_sum_exp([row[stop] for stop in self.stops])
            for stop in self.stops:
                row[stop] = NEVER
            row[self.eos] = end
            rows.append(self.without_refusals(z, said[:i], row))
        return torch.tensor(rows, dtype=torch.float64)

    def without_refusals(self, z: int, said: Tokens, row: list[float]) -> list[float]:
        """By the definition: p'(said + token) / p'(said), where p' of a beginning lacks the refusals behind it."""
        begun = [refusal for refusal in self.refusals if refusal[: len(said)] == said and len(refusal) > len(said)]
        if not begun:
            return row
        before = self.plain(z, said)
        here = before if not said else minus(before, [self.plain(z, refusal) for refusal in begun])
        after = []
        for token, log_prob in enumerate(row):
            longer = (*said, token)
            inside = [self.plain(z, refusal) for refusal in begun if refusal[: len(longer)] == longer]
            joint = minus(before + log_prob, inside)
            if longer == (self.eos,):
                joint = log_sum_exp([joint, *(self.plain(z, refusal) for refusal in begun)])
            after.append(joint - here)
        return after

    def plain(self, z: int, answer: Tokens) -> float:
        """log p of an answer with its stops as one and its refusals as they are; 0 of nothing."""
        if not answer:
            return 0.0
        key = (z, (-1, *answer))
        if key not in self.table:
            with torch.no_grad():
                logits = self.model(input_ids=torch.tensor([[*self.inputs[z], *answer[:-1]]]), use_cache=False).logits
            rows = torch.log_softmax(logits[0, len(self.inputs[z]) - 1 :], dim=-1)
            total = 0.0
            for row, token in zip(rows, answer, strict=True):
                total += (
                    log_sum_exp([float(row[stop]) for stop in self.stops]) if token == self.eos else float(row[token])
                )
            self.table[key] = [total]
        return self.table[key][0]


def minus(log_prob: float, parts: Sequence[float]) -> float:
    """log(exp(log_prob) - sum of exp(parts))."""
    share = math.fsum(math.exp(part - log_prob) for part in parts)
    return log_prob + math.log1p(-share) if share < 1 - 1e-12 else NEVER
