"""Llama and Qwen2, read without waste: the same arithmetic with the model's own modules, and another way to attend.

transformers' forward wants the keys and values of a whole prompt in each row. Here the beginning that all prompts share
is there once: the queries of all rows stand side by side before it. A row's cache holds its own tokens alone.

    G query heads share a head of keys, H heads of keys, so G * H heads of queries
    shared    (Y, 2, H, P, dh)      keys and values of the beginning
    cache     (Y, 2, R, H, S, dh)   those of each row's own tokens
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen2ForCausalLM

from openbook.rag.attention import FEW_QUERIES, attend, hide
from openbook.rag.causal_network import CausalNetwork, Slots


def can_step(model: PreTrainedModel) -> bool:
    """True for these two models where no layer sees a window; their relatives differ in what they normalise."""
    kinds = getattr(model.config, "layer_types", None) or ["full_attention"]
    return type(model) in (LlamaForCausalLM, Qwen2ForCausalLM) and set(kinds) == {"full_attention"}


class LlamaNetwork(CausalNetwork):
    """A Llama or a Qwen2 with the beginning of all its texts."""

    _shared: Tensor

    @torch.inference_mode()
    def begin(self, tokens: tuple[int, ...]) -> Tensor:
        read = super().begin(tokens)  # (Y, 2, 1, H, P, dh)
        self._shared = read[:, :, 0].contiguous()  # (Y, 2, H, P, dh)
        return read[..., :0, :].clone()

    def _forward(
        self, cache: Tensor, tokens: Tensor, positions: Tensor, visible: Tensor, slots: Slots, _: Tensor, keep: int
    ) -> Tensor:
        decoder = self.model.model
        rows, new = tokens.shape  # R', T
        heads, every = cache.shape[3:5]  # H, S
        x = decoder.embed_tokens(tokens)  # (R', T, d)
        cos, sin = (one[:, :, None] for one in decoder.rotary_emb(x, positions))  # (R', T, 1, dh)
        turned = torch.cat([-sin[..., : sin.shape[-1] // 2], sin[..., sin.shape[-1] // 2 :]], dim=-1)
        few = new * self._groups <= FEW_QUERIES
        # the queries of a group stand side by side
        bias = hide(visible, x.dtype).repeat(1, self._groups, 1)[:, None]  # (R', 1, G * T, S')
        # few queries look at empty slots as well: a product with a part of a tensor may copy it
        used = every if few else visible.shape[-1]
        bias = F.pad(bias, (0, used - visible.shape[-1]), value=-torch.inf)
        if not few:
            bias = F.pad(bias, (self._shared.shape[3], 0))  # (R', 1, G * T, P + S')
        for held, shared, layer in zip(cache, self._shared, decoder.layers, strict=True):
            own: Any = layer.self_attn
            normed = layer.input_layernorm(x)
            queries, keys, values = (
                product(normed).view(rows, new, -1, cache.shape[-1])  # (R', T, G * H or H, dh)
                for product in (own.q_proj, own.k_proj, own.v_proj)
            )
            queries, keys = (_rotate(one, cos, turned) for one in (queries, keys))
            for of_slots, states in ((held[0], keys), (held[1], values)):
                _write(of_slots, slots, states)
            grouped = queries.view(rows, new, heads, -1, queries.shape[-1]).permute(0, 2, 3, 1, 4)  # (R', H, G, T, dh)
            packed = grouped.reshape(rows, heads, -1, queries.shape[-1])  # (R', H, G * T, dh)
            look = _attend_few if few else _attend_many
            read = look(packed, held[:, :, :, :used], shared, bias).view(grouped.shape)
            x = x + own.o_proj(read.permute(0, 3, 1, 2, 4).reshape(rows, new, -1))
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        logits: Tensor = self.model.lm_head(decoder.norm(x[:, new - keep :]))  # (R', keep, V)
        return logits

    @property
    def _groups(self) -> int:
        """G."""
        config = self.model.config
        return int(config.num_attention_heads // config.num_key_value_heads)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions of (R, T, H, dh), by cosines and by sines whose first half is negative, (R, T, 1, dh) each."""
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def _write(held: Tensor, slots: Slots, states: Tensor) -> None:
    """Keys or values of new tokens (R, T, H, dh) into their slots of (R, H, S, dh)."""
    if isinstance(slots, slice):
        held[:, :, slots] = states.transpose(1, 2)
    else:
        held[torch.arange(len(held), device=held.device)[:, None], :, slots] = states


def _attend_few(queries: Tensor, own: Tensor, shared: Tensor, bias: Tensor) -> Tensor:
    """Queries (R, H, N, dh) over their row's own keys and values (2, R, H, S, dh), of which `bias` (R, 1, N, S) hides
    some, and over the shared ones (2, H, P, dh), which are read once: (R, H, N, dh)."""
    rows, heads, few, width = queries.shape
    scaled = queries * width**-0.5
    side_by_side = scaled.transpose(0, 1).reshape(heads, rows * few, width)  # (H, R * N, dh)
    before = torch.bmm(side_by_side, shared[0].transpose(1, 2)).view(heads, rows, few, -1).transpose(0, 1)
    scores = torch.cat([before, torch.matmul(scaled, own[0].transpose(2, 3)) + bias], dim=-1)  # (R, H, N, P + S)
    shares = torch.softmax(scores, dim=-1)
    of_shared, of_own = shares[..., : shared.shape[2]], shares[..., shared.shape[2] :]
    read = torch.bmm(of_shared.transpose(0, 1).reshape(heads, rows * few, -1), shared[1])  # (H, R * N, dh)
    return torch.matmul(of_own, own[1]) + read.view(heads, rows, few, width).transpose(0, 1)


def _attend_many(queries: Tensor, own: Tensor, shared: Tensor, bias: Tensor) -> Tensor:
    """The same for so many queries that a copy of the shared keys for each row costs little: bias (R, 1, N, P + S)."""
    together = torch.cat([shared[:, None].expand(-1, len(queries), -1, -1, -1), own], dim=3)  # (2, R, H, P + S, dh)
    return attend(queries, together[0], together[1], bias)
