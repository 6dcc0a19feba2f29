"""A causal language model between two tokens of an answer, by transformers' own forward and cache.

R rows, each one passage with one question in one prompt, B hypotheses a row, V vocabulary, t tokens said.

Two things that a model says in several ways count as one. An answer ends with any of several tokens: their
probabilities are summed, and the first of them stands for all. And a refusal ("unknown") is the empty answer: its whole
probability goes there, and no other answer changes.
"""

import inspect
from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from openbook.errors import CheckpointInvalid
from openbook.rag.decoder import next_token_logits
from openbook.rag.linear import rearrange
from openbook.rag.transformers_state import TransformersState
from openbook.rag.weights import first_line

# How far the log-probs of two ways to compute the same may lie apart: the mean over the vocabulary.
TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-2}
TYPICAL_TOKENS = 20
NEEDED = ("position_ids", "past_key_values", "logits_to_keep")

Tokens = tuple[int, ...]


class CausalReader:
    """The model, what ends its answers, and what it has read of the beginning that its prompts share.

    `refusals` are the answers that count as the empty one, each with `stops[0]` at its end.
    """

    def __init__(self, model: PreTrainedModel, name: str) -> None:
        """The model's weights are rearranged: it can then neither be saved nor trained.

        Raises CheckpointInvalid, which names the checkpoint `name`, for a model that cannot be read in pieces.
        """
        lacks = [one for one in NEEDED if one not in inspect.signature(model.forward).parameters]
        if lacks:
            raise CheckpointInvalid(checkpoint=name, reason=f"its generator's forward does not take {lacks[0]}.")
        rearrange(model, rows=TYPICAL_TOKENS)
        self.model: Any = model
        self.stops: Tokens = (0,)
        self.refusals: tuple[Tokens, ...] = ()
        self._shared: Tokens = ()
        self._begun = DynamicCache()
        self._check(name)

    def begin(self, shared: Tokens, stops: Tokens, refusals: tuple[Tokens, ...]) -> None:
        """Read what all prompts begin with, once."""
        self.stops, self.refusals = stops, refusals
        config = self.model.config.get_text_config()
        # a window that counts slots would count the padding behind the shared part
        if shared and getattr(config, "sliding_window", None) is None:
            self.step(self._begun, torch.tensor([shared], device=self.model.device), keep=1)
            self._shared = shared

    def start(self, rows: Sequence[Tokens]) -> tuple[DynamicCache, Tensor, Tensor]:
        """Read prompts, padded at their beginning or behind what they share: their cache, the mask (R, S), and the
        logits (R, 1, V) of what comes next."""
        cache, before = DynamicCache(), 0
        if self._shared and all(row[: len(self._shared)] == self._shared for row in rows):
            cache, before = copied(self._begun), len(self._shared)
            cache.batch_repeat_interleave(len(rows))
        longest = max(map(len, rows)) - before
        own = [[0] * (longest - len(row) + before) + list(row[before:]) for row in rows]
        real = [[1] * before + [0] * (longest - len(row) + before) + [1] * (len(row) - before) for row in rows]
        mask = torch.tensor(real, device=self.model.device)  # (R, S)
        return cache, mask, self.step(cache, torch.tensor(own, device=self.model.device), mask, keep=1)

    def step(self, cache: DynamicCache, tokens: Tensor, mask: Tensor | None = None, *, keep: int = 0) -> Tensor:
        """Read tokens (N, T), which see what `mask` (N, S) has of the cache and of themselves: the logits of the last
        `keep` of them, or of all, with all stops as one."""
        mask = torch.ones_like(tokens) if mask is None else mask
        # positions count real tokens; what is hidden has any position
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -tokens.shape[1] :]  # (N, T)
        output = self.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=keep,
        )
        logits = next_token_logits(output.logits)
        if len(self.stops) > 1:
            together = logits[..., list(self.stops)].logsumexp(dim=-1)
            logits[..., list(self.stops)] = -torch.inf
            logits[..., self.stops[0]] = together
        return logits

    @torch.inference_mode()
    def _check(self, name: str) -> None:
        """Read two short texts in pieces, one of them padded, and compare with the model's own passes over each."""
        dice = torch.Generator().manual_seed(0)
        vocabulary = self.model.config.get_text_config().vocab_size
        text = tuple(torch.randint(vocabulary, (12,), generator=dice).tolist())
        try:
            state = CausalState(self, [text[:9], text[4:9]])
            found = torch.log_softmax(state.read(text[9:])[:, -1], dim=-1)  # (2, V)
            whole = [self.model(input_ids=torch.tensor([one], device=found.device)) for one in (text, text[4:])]
            logits = torch.stack([next_token_logits(one.logits)[0, -1] for one in whole])  # (2, V)
        except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
            raise CheckpointInvalid(
                checkpoint=name, reason=f"its generator cannot be read piece by piece: {first_line(error)}"
            ) from error
        apart = float((found - torch.log_softmax(logits, dim=-1)).abs().mean())
        if not apart <= TOLERANCES.get(self.model.dtype, 0.25):
            raise CheckpointInvalid(
                checkpoint=name,
                reason=f"its generator reads a text in pieces otherwise than whole: log-probs are {apart:.3g} apart.",
            )


class CausalState(TransformersState):
    """A `DecoderState` of a causal language model."""

    _cache: DynamicCache

    def __init__(self, reader: CausalReader, rows: Sequence[Tokens]) -> None:
        self._reader, self._beams = reader, 1
        self._cache, self._mask, logits = reader.start(rows)  # _mask is (R * B, S)
        self._said = self._mask.new_zeros(len(rows), 1, 0)  # (R, B, t)
        # log p of what is left of each refusal after so many of its tokens, (R, t) each
        self._left = [self._left_of(refusal, logits) for refusal in reader.refusals]
        self.logits = self._without_refusals(logits, self._said)

    def advance(self, sources: Tensor, tokens: Tensor) -> None:
        super().advance(sources, tokens)
        said = self._said.gather(1, sources[..., None].expand(-1, -1, self._said.shape[-1]))  # (R, B, t)
        self._said = torch.cat([said, tokens[..., None]], dim=-1)
        self.logits = self._without_refusals(self.logits, self._said)

    def read(self, tokens: Sequence[int]) -> Tensor:
        before = self._said.shape[-1]
        logits = super().read(tokens)  # (R, T, V)
        new = torch.tensor(list(tokens), device=logits.device).expand(len(logits), 1, -1)  # (R, 1, T)
        self._said = torch.cat([self._said, new], dim=-1)
        for place in range(len(tokens)):
            self._without_refusals(logits[:, place, None], self._said[..., : before + place + 1])
        return logits

    def forget(self, count: int) -> None:
        super().forget(count)
        if count:
            self._mask, self._said = self._mask[:, :-count], self._said[..., :-count]

    def again(self) -> "CausalState":
        """The same, read no further by what becomes of this one."""
        other = copy(self)
        other._cache, other.logits = copied(self._cache), self.logits.clone()
        return other

    def branch(self, rows: Sequence[int]) -> "CausalState":
        chosen = torch.tensor(list(rows), device=self._mask.device)
        of_rows = (chosen[:, None] * self._beams + torch.arange(self._beams, device=chosen.device)).flatten()
        other = copy(self)
        other._cache = copied(self._cache)
        other._cache.batch_select_indices(of_rows)
        other._mask, other._said, other.logits = self._mask[of_rows], self._said[chosen], self.logits[chosen]
        other._left = [one[chosen] for one in self._left]
        return other

    @property
    def _said_cache(self) -> DynamicCache:
        return self._cache

    def _fan_out(self, beams: int) -> None:
        self._cache.batch_repeat_interleave(beams)
        self._mask = self._mask.repeat_interleave(beams, dim=0)
        self._beams = beams

    def _step(self, tokens: Tensor) -> Tensor:
        """(R * B, T) -> (R * B, T, V)."""
        self._mask = F.pad(self._mask, (0, tokens.shape[1]), value=1)
        return self._reader.step(self._cache, tokens, self._mask)

    def _left_of(self, refusal: Tokens, first: Tensor) -> Tensor:
        """log p(refusal_i.. | refusal_<i) for each i, (R, t): `first` (R, 1, V) are the logits before it."""
        rows, said = len(first), torch.tensor(refusal, device=first.device)
        logits = torch.cat([first, self._step(said[:-1].expand(rows, -1))], dim=1)  # (R, t, V)
        self.forget(len(refusal) - 1)
        log_probs = torch.log_softmax(logits, dim=-1).gather(-1, said.expand(rows, -1)[..., None])[..., 0]  # (R, t)
        return log_probs.flip(1).cumsum(1).flip(1)

    def _without_refusals(self, logits: Tensor, said: Tensor) -> Tensor:
        """Take each refusal's probability from the hypotheses that are about to say it, in place: logits (R, B, V)
        after `said` (R, B, t).

        Before the first token it goes to the end, so that nothing is lost. After that, logits need no constant.
        """
        n_said, end = said.shape[-1], self._reader.stops[0]
        total = None
        for refusal, left in zip(self._reader.refusals, self._left, strict=True):
            if n_said >= len(refusal):
                continue
            begun = (said == torch.tensor(refusal[:n_said], device=said.device)).all(dim=-1)  # (R, B)
            if not bool(begun.any()):
                continue
            total = logits.logsumexp(dim=-1) if total is None else total  # (R, B)
            whole = (total + left[:, n_said, None]).to(logits)  # (R, B), of what is left of the refusal
            before = logits[..., refusal[n_said]]  # (R, B)
            # 0 where rounding makes the part as large as the whole: nothing else begins like this
            without = before + torch.log(-torch.expm1((whole - before).clamp(max=0.0)))
            logits[..., refusal[n_said]] = torch.where(begun, without, before)
            if n_said == 0:
                logits[..., end] = torch.where(begun, torch.logaddexp(logits[..., end], whole), logits[..., end])
        return logits


def copied(cache: DynamicCache) -> DynamicCache:
    """A cache of the same tensors, none of which is written into: reading on makes new ones."""
    other = copy(cache)
    other.layers = [copy(layer) for layer in cache.layers]
    return other
