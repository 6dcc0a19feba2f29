"""The decoder between two tokens: what a beam search steps, whatever the generator.

Rows and beams. A batch has R rows, each one passage read with one question; a state carries B hypotheses a row.
Cross-attention belongs to the row, self-attention to the hypothesis: only the latter follows the beams.
"""

from collections.abc import Callable, Collection, Sequence
from copy import copy, deepcopy
from typing import Any, Protocol, Self

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

# Log-probs of a whole vocabulary that teacher forcing holds at once: 64 MB of float32. Targets and passages come
# from outside, and must not decide how much memory they take.
MAX_NUMBERS = 16 << 20
# The decoder computes this many hypotheses at a time: a full batch of 8 questions, each with 5 passages and 4 beams.
# A question may ask for more hypotheses, but not for more memory.
MAX_HYPOTHESES = 160
# Targets that the general way scores in one pass.
TARGETS_A_PASS = 8

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


class TransformersState:
    """Any encoder-decoder of transformers, stepped through its own forward and cache."""

    def __init__(self, model: PreTrainedModel, prefix: tuple[int, ...], states: Tensor, mask: Tensor) -> None:
        self._model: Any = model
        self._mask = mask  # (R * B, L)
        self._states = states  # (R * B, L, d)
        self._beams = 1
        self._cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        tokens = torch.tensor([prefix] * states.shape[0], device=states.device)  # (R, P)
        self.logits = self._step(tokens)[:, -1:]  # (R, 1, V)
        # keys and values are cached now; the model only asks the states for their shape, which costs nothing
        self._states = states.new_zeros(1, 1, 1).expand(states.shape)  # (R, L, d)

    def advance(self, sources: Tensor, tokens: Tensor) -> None:
        rows, beams = tokens.shape
        if self._beams < beams:
            self._fan_out(beams)
        elif beams > 1:
            offsets = torch.arange(rows, device=tokens.device)[:, None] * beams  # (R, 1)
            self._cache.self_attention_cache.reorder_cache((sources + offsets).flatten())
        self.logits = self._step(tokens.reshape(-1, 1)).view(rows, beams, -1)  # (R, B, V)

    def read(self, tokens: Sequence[int]) -> Tensor:
        return self._step(torch.tensor([list(tokens)] * self.logits.shape[0], device=self.logits.device))

    def forget(self, count: int) -> None:
        self._cache.self_attention_cache.crop(-count)

    def branch(self, rows: Sequence[int]) -> "TransformersState":
        device = self._mask.device
        of_row = torch.arange(self._beams, device=device)  # (B,)
        chosen = (torch.tensor(list(rows), device=device)[:, None] * self._beams + of_row).flatten()  # (R' * B,)
        other = copy(self)
        other._cache = deepcopy(self._cache)
        other._cache.batch_select_indices(chosen)
        other._mask, other._states = self._mask[chosen], self._states[chosen]
        other.logits = self.logits[list(rows)]
        return other

    def follow(self, targets: Targets, between_steps: BetweenSteps = nothing) -> list[Tensor]:
        followed: list[Tensor] = []
        for first in range(0, len(targets), TARGETS_A_PASS):
            some = targets[first : first + TARGETS_A_PASS]
            log_probs = self.branch(range(self.logits.shape[0]))._follow(some, between_steps)  # (R, C, T)
            followed += [log_probs[:, c, : len(target)] for c, target in enumerate(some)]
        return followed

    def _follow(self, targets: Targets, between_steps: BetweenSteps) -> Tensor:
        """(R, C, T): causal, so that padding at the end changes nothing."""
        rows, count, length = self.logits.shape[0], len(targets), max(map(len, targets))
        padded = [[*target, *([0] * (length - len(target)))] for target in targets]
        ids = torch.tensor([padded] * rows, device=self.logits.device)  # (R, C, T)
        parts = [torch.log_softmax(self.logits, dim=-1).expand(-1, count, -1).gather(-1, ids[..., :1])]  # (R, C, 1)
        if self._beams < count:
            self._fan_out(count)
        for said in slices(length - 1, rows * count * self.logits.shape[-1]):
            between_steps()
            log_probs = torch.log_softmax(self._step(ids[..., said].reshape(rows * count, -1)), dim=-1)  # (R * C, S, V)
            next_tokens = ids[..., 1:][..., said]  # (R, C, S)
            parts.append(log_probs.view(*next_tokens.shape, -1).gather(-1, next_tokens[..., None])[..., 0])
        return torch.cat(parts, dim=-1)

    def _fan_out(self, beams: int) -> None:
        """B copies of each row's one hypothesis, cross-attention included; made once in a decoding."""
        self._cache.batch_repeat_interleave(beams)
        self._mask = self._mask.repeat_interleave(beams, dim=0)  # (R * B, L)
        self._states = self._states[:1].expand(self._mask.shape[0], -1, -1)  # (R * B, L, d)
        self._beams = beams

    def _step(self, tokens: Tensor) -> Tensor:
        """(R * B, T) -> (R * B, T, V)."""
        output = self._model(
            encoder_outputs=BaseModelOutput(last_hidden_state=self._states),
            attention_mask=self._mask,
            decoder_input_ids=tokens,
            past_key_values=self._cache,
            use_cache=True,
        )
        return next_token_logits(output.logits)


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
