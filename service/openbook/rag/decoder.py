"""The decoder between two tokens: what a beam search steps, whatever the generator.

Rows and beams. A batch has R rows, each one passage read with one question; a state carries B hypotheses a row.
Cross-attention belongs to the row, self-attention to the hypothesis: only the latter follows the beams.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

# Log-probs of a whole vocabulary that teacher forcing holds at once: 64 MB of float32. Targets and passages come
# from outside, and must not decide how much memory they take.
MAX_NUMBERS = 16 << 20
# The decoder computes this many hypotheses at a time: a full batch of 8 questions, each with 5 passages and 4 beams.
# A question may ask for more hypotheses, but not for more memory.
MAX_HYPOTHESES = 160

Targets = Sequence[Sequence[int]]
"""Answers token by token, of any lengths, none of them empty."""

BetweenSteps = Callable[[], Collection[int] | None]
"""Called before each step: returns the numbers of the abandoned questions of the batch, or None. What it raises ends
the work."""


def nothing() -> None:
    """The `between_steps` of a caller that never interrupts."""


class SearchedState(Protocol):
    """What a search needs of a decoding under way. It belongs to one search; nothing else sees it change."""

    logits: Tensor
    """(R, B, V): log p(. | x, z, y_<i) of every next token up to a constant, float32 at least. B is 1 before the first
    token."""

    def advance(self, sources: Tensor, tokens: Tensor) -> None:
        """Continue with B hypotheses a row: the b-th is number sources[r, b] of before, extended by tokens[r, b].

        Both are (R, B). B may grow from 1 once, after the first token; from then on it stays.
        """

    def branch(self, rows: Sequence[int]) -> "SearchedState":
        """An independent decoding of some of the rows, from the same point; nothing is computed again."""


class DecoderState(SearchedState, Protocol):
    """A decoding under way, whatever is to be made of it."""

    def branch(self, rows: Sequence[int]) -> Self: ...

    def read(self, tokens: Sequence[int]) -> Tensor:
        """Continue each row's one hypothesis by T tokens, the same for all rows: the logits after each of them,
        (R, T, V). B is 1, and `logits` stays as it is."""

    def forget(self, count: int) -> None:
        """Take back the last `count` tokens of the last `read`, and no others."""

    def follow(self, targets: Targets, between_steps: BetweenSteps = nothing) -> list[Tensor]:
        """Teacher forcing from here, before the first token: log p of each token of each target under every row, a
        tensor (R, T) a target. Ends the state."""


def groups_of(rows: range, most: int) -> list[range]:
    """Cuts `rows` into groups of `most` rows, or of one where `most` is less."""
    return [rows[start : start + max(1, most)] for start in range(0, len(rows), max(1, most))]


def slices(length: int, numbers_a_token: int) -> list[slice]:
    """Cuts `length` tokens into slices whose log-probs fit in MAX_NUMBERS; a slice has one token at least."""
    width = max(1, MAX_NUMBERS // numbers_a_token)
    return [slice(start, min(start + width, length)) for start in range(0, length, width)]


def next_token_logits(logits: Tensor) -> Tensor:
    """In float32, or in float64 where the model itself is of that precision: (..., V) -> (..., V)."""
    return logits if logits.dtype == torch.float64 else logits.float()
