"""The general way to step a decoder: transformers' own forward and cache, for any encoder-decoder that it has."""

from collections.abc import Sequence
from copy import copy, deepcopy
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from openbook.rag.decoder import BetweenSteps, Targets, next_token_logits, nothing, slices


class TransformersState:
    """A `DecoderState` of any encoder-decoder of transformers."""

    def __init__(self, model: Any, prefix: tuple[int, ...], states: Tensor, mask: Tensor) -> None:
        self._model = model
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
            order = (sources + offsets).flatten()
            if not torch.equal(order, torch.arange(len(order), device=order.device)):
                self._said_cache.reorder_cache(order)
        self.logits = self._step(tokens.reshape(-1, 1)).view(rows, beams, -1)  # (R, B, V)

    def read(self, tokens: Sequence[int]) -> Tensor:
        return self._step(torch.tensor([list(tokens)] * self.logits.shape[0], device=self.logits.device))

    def forget(self, count: int) -> None:
        if count:
            self._said_cache.crop(-count)

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
        rows, _, vocabulary = self.logits.shape
        followed: list[Tensor] = []
        for target in targets:
            log_probs = [torch.log_softmax(self.logits[:, 0], dim=-1)[:, target[0], None]]  # (R, 1)
            for said in slices(len(target) - 1, rows * vocabulary):
                between_steps()
                after = torch.tensor(target[1:][said], device=self.logits.device).expand(rows, -1)  # (R, S)
                of_all = torch.log_softmax(self.read(target[said]), dim=-1)  # (R, S, V)
                log_probs.append(of_all.gather(-1, after[..., None])[..., 0])
            self.forget(len(target) - 1)
            followed.append(torch.cat(log_probs, dim=-1))
        return followed

    @property
    def _said_cache(self) -> DynamicCache:
        """The keys and values that follow the hypotheses."""
        return self._cache.self_attention_cache

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
