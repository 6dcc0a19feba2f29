"""BART's decoder, stepped without waste.

transformers repeats a passage's cross-attention keys and values for every beam and copies them at each reordering,
though all beams of a row read the same passage. Here they are computed once a row, and the beams of the row are the
queries of one attention:

    self-attention    (R * B, H, T, dh)   queries and cache of each hypothesis
    cross-attention   (R, H, B * T, dh)   against (R, H, L, dh), never copied

R rows, B beams, T new tokens, t cached, L source tokens, H heads of dh dimensions, d = H * dh.
The arithmetic is BART's own (post-layer-norm), with the model's own parameters.
"""

from collections.abc import Callable
from copy import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BartForConditionalGeneration, PreTrainedModel

from service.rag.decoder import next_token_log_probs, nothing, slices


def can_step(model: PreTrainedModel) -> bool:
    """True for BART itself; its relatives differ in where they normalise, and take the general way."""
    return type(model) is BartForConditionalGeneration


class BartState:
    """A `DecoderState` of a BartForConditionalGeneration."""

    def __init__(self, model: PreTrainedModel, prefix: tuple[int, ...], states: Tensor, mask: Tensor) -> None:
        self._model: Any = model
        self._decoder: Any = model.get_decoder()
        self._heads: int = model.config.decoder_attention_heads
        self._attended = mask.bool()[:, None, None, :]  # (R, 1, 1, L)
        self._cross = [self._keys_values(layer.encoder_attn, states) for layer in self._decoder.layers]
        self._cache: list[tuple[Tensor, Tensor] | None] = [None] * len(self._cross)  # (R * B, H, t, dh) each
        self._length = 0  # t
        rows = states.shape[0]
        tokens = torch.tensor([prefix] * rows, device=states.device)[:, None]  # (R, 1, P)
        self.log_probs = self._step(tokens)[:, :, -1]  # (R, 1, V)

    def advance(self, sources: Tensor, tokens: Tensor) -> None:
        rows, beams = tokens.shape
        self._reorder(sources)
        self.log_probs = self._step(tokens[..., None]).view(rows, beams, -1)  # (R, B, V)

    def branch(self, rows: range) -> "BartState":
        chosen = slice(rows.start, rows.stop)
        before = self.log_probs.shape[1]
        hypotheses = slice(rows.start * before, rows.stop * before)
        other = copy(self)
        other._attended = self._attended[chosen]
        other._cross = [(keys[chosen], values[chosen]) for keys, values in self._cross]
        # tensors are shared, since a step makes new ones; the lists are not
        other._cache = [
            None if cached is None else (cached[0][hypotheses], cached[1][hypotheses]) for cached in self._cache
        ]
        other.log_probs = self.log_probs[chosen]
        return other

    def follow(self, targets: Tensor, between_steps: Callable[[], None] = nothing) -> Tensor:
        rows, beams, length = targets.shape
        parts = [self.log_probs.expand(-1, beams, -1).gather(-1, targets[..., :1])]  # (R, B, 1)
        if self.log_probs.shape[1] < beams:
            self._reorder(targets.new_zeros(rows, beams))
        for said in slices(length - 1, rows * beams * self.log_probs.shape[-1]):
            between_steps()
            log_probs = self._step(targets[..., said])  # (R, B, S, V)
            parts.append(log_probs.gather(-1, targets[..., 1:][..., said, None])[..., 0])  # (R, B, S)
        return torch.cat(parts, dim=-1)  # (R, B, T)

    def _reorder(self, sources: Tensor) -> None:
        """Let each hypothesis take the cache of the one that it continues: sources (R, B)."""
        rows, beams = sources.shape
        before = self.log_probs.shape[1]
        if before == beams == 1:
            return
        chosen = (sources + torch.arange(rows, device=sources.device)[:, None] * before).flatten()  # (R * B,)
        self._cache = [
            None if cached is None else (cached[0].index_select(0, chosen), cached[1].index_select(0, chosen))
            for cached in self._cache
        ]

    def _step(self, tokens: Tensor) -> Tensor:
        """Read T new tokens of each hypothesis: (R, B, T) -> log-probs (R, B, T, V)."""
        new = tokens.shape[-1]
        decoder = self._decoder
        positions = torch.arange(self._length, self._length + new, device=tokens.device)  # (T,)
        places = F.embedding(positions + decoder.embed_positions.offset, decoder.embed_positions.weight)  # (T, d)
        x = decoder.layernorm_embedding(decoder.embed_tokens(tokens) + places)  # (R, B, T, d)
        visible = None  # a lone new token sees all that is cached and itself
        if new > 1:
            visible = positions[:, None] >= torch.arange(self._length + new, device=tokens.device)  # (T, t + T)
        for number, layer in enumerate(decoder.layers):
            x = layer.self_attn_layer_norm(x + self._attend_to_self(number, layer.self_attn, x, visible))
            x = layer.encoder_attn_layer_norm(x + self._attend_to_passage(number, layer.encoder_attn, x))
            x = layer.final_layer_norm(x + layer.fc2(layer.activation_fn(layer.fc1(x))))
        self._length += new
        return next_token_log_probs(self._model.lm_head(x) + self._model.final_logits_bias)  # (R, B, T, V)

    def _attend_to_self(self, number: int, attention: Any, x: Tensor, visible: Tensor | None) -> Tensor:
        """(R, B, T, d) -> (R, B, T, d), over what the hypothesis has said so far."""
        hypotheses = x.flatten(0, 1)  # (R * B, T, d)
        keys, values = self._keys_values(attention, hypotheses)  # (R * B, H, T, dh)
        cached = self._cache[number]
        if cached is not None:
            keys, values = torch.cat([cached[0], keys], dim=2), torch.cat([cached[1], values], dim=2)
        self._cache[number] = keys, values  # (R * B, H, t + T, dh)
        queries = self._split(attention.q_proj(hypotheses))  # (R * B, H, T, dh)
        read = F.scaled_dot_product_attention(queries, keys, values, attn_mask=visible)  # (R * B, H, T, dh)
        return self._join(attention, read).view_as(x)

    def _attend_to_passage(self, number: int, attention: Any, x: Tensor) -> Tensor:
        """(R, B, T, d) -> (R, B, T, d), over the row's passage, all hypotheses at once."""
        keys, values = self._cross[number]  # (R, H, L, dh)
        queries = self._split(attention.q_proj(x.flatten(1, 2)))  # (R, H, B * T, dh)
        read = F.scaled_dot_product_attention(queries, keys, values, attn_mask=self._attended)  # (R, H, B * T, dh)
        return self._join(attention, read).view_as(x)

    def _keys_values(self, attention: Any, states: Tensor) -> tuple[Tensor, Tensor]:
        """(N, S, d) -> two of (N, H, S, dh)."""
        return self._split(attention.k_proj(states)), self._split(attention.v_proj(states))

    def _split(self, projected: Tensor) -> Tensor:
        """(N, S, d) -> (N, H, S, dh)."""
        return projected.view(*projected.shape[:2], self._heads, -1).transpose(1, 2)

    @staticmethod
    def _join(attention: Any, read: Tensor) -> Tensor:
        """(N, H, S, dh) -> (N, S, d), through the output projection."""
        joined: Tensor = attention.out_proj(read.transpose(1, 2).flatten(2))
        return joined
