"""BART's encoder over passages of any lengths, without a padded token.

The tokens of all passages follow one another, shortest passage first: every product, norm and activation is over N
real tokens. Only attention looks at passages, those of one length together.

    R passages of L_r tokens, N the sum of them, H heads of dh dimensions, d = H * dh

Products take N' rows (`filled_rows`). The encoder appends the rows beyond N once, and drops them at the end.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openbook.rag.attention import attend
from openbook.rag.linear import Linear, filled_rows, make_linear

TYPICAL_TOKENS = 800


class BartEncoder:
    """The encoder of a BART, whole or bare, its weights rearranged once. Holds nothing of any passage."""

    def __init__(self, model: Any, *, int8: bool = False, keep: bool = True) -> None:
        self._encoder: Any = model.get_encoder()
        self._heads: int = model.config.encoder_attention_heads
        gelu = model.config.activation_function == "gelu"

        def packed(*layers: Any, gelu: bool = False) -> Linear:
            return make_linear(layers, rows=TYPICAL_TOKENS, gelu=gelu, int8=int8, keep=keep)

        self._layers = [
            (
                packed(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj),
                packed(layer.self_attn.out_proj),
                packed(layer.fc1, gelu=gelu),
                packed(layer.fc2),
            )
            for layer in self._encoder.layers
        ]
        self._activation = None if gelu else self._encoder.layers[0].activation_fn

    def __call__(self, rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
        """The tokens of each passage -> its states (R, L, d), zero behind its end, and the mask (R, L), 1 on tokens."""
        encoder = self._encoder
        device = encoder.embed_tokens.weight.device
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        lengths = [len(rows[row]) for row in order]
        tokens = torch.tensor([token for row in order for token in rows[row]], device=device)  # (N,)
        positions = torch.tensor([place for length in lengths for place in range(length)], device=device)  # (N,)
        places = encoder.embed_positions.weight[positions + encoder.embed_positions.offset]  # (N, d)
        embedded = encoder.layernorm_embedding(encoder.embed_tokens(tokens) + places)  # (N, d)
        x = F.pad(embedded, (0, 0, 0, filled_rows(len(embedded)) - len(embedded)))  # (N', d)
        groups = [(len(list(same)), length) for length, same in groupby(lengths)]
        for layer, (queries_keys_values, attended, fc1, fc2) in zip(encoder.layers, self._layers, strict=True):
            read = self._read(queries_keys_values(x), groups)  # (N', d)
            x = layer.self_attn_layer_norm(attended(read).add_(x))
            hidden = fc1(x)  # (N', 4 d)
            x = layer.final_layer_norm(fc2(hidden if self._activation is None else self._activation(hidden)).add_(x))
        mask = torch.zeros(len(rows), lengths[-1], dtype=torch.long, device=device)  # (R, L)
        for row, tokens_of_row in enumerate(rows):
            mask[row, : len(tokens_of_row)] = 1
        states = x.new_zeros(len(rows), lengths[-1], x.shape[-1])  # (R, L, d)
        for row, of_row in zip(order, torch.split(x[: len(tokens)], lengths), strict=True):
            states[row, : len(of_row)] = of_row
        return states, mask

    def _read(self, projected: Tensor, groups: Sequence[tuple[int, int]]) -> Tensor:
        """Attention within each passage: queries, keys and values (N', 3 d) -> (N', d)."""
        read = projected.new_zeros(len(projected), projected.shape[-1] // 3)  # (N', d)
        first = 0
        for count, length in groups:
            some = slice(first, first + count * length)
            split = projected[some].view(count, length, 3, self._heads, -1).permute(2, 0, 3, 1, 4)  # (3, R', H, L, dh)
            of_group = attend(*split).transpose(1, 2)  # (R', L, H, dh)
            read[some].view(of_group.shape).copy_(of_group)
            first = some.stop
        return read
