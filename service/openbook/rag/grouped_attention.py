"""Attention for models whose query heads share key heads, without a copy of the keys for each query head.

transformers repeats the keys and values of every row for each group of heads as soon as a row has more than one new
token: for the beams of a row that is a copy of its whole prompt at each layer and step. Here the queries of a group
stand side by side before one copy of its keys.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

NAME = "openbook_grouped"


def use_grouped_attention(model: PreTrainedModel) -> None:
    """Let the model attend this way, where it attends by torch's own kernel."""
    if model.config.get_text_config()._attn_implementation == "sdpa":
        # transformers finds attention by its name
        AttentionInterface.register(NAME, _attend)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        model.set_attn_implementation(NAME)


def _attend(
    module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, **options: Any
) -> tuple[Tensor, Tensor | None]:
    """Queries (R, H, T, dh) over keys and values (R, H', S, dh), with a mask (R, 1, T, S): (R, T, H, dh)."""
    rows, heads, new, width = query.shape
    groups = heads // key.shape[1]
    if attention_mask is None or groups == 1 or options.get("position_bias") is not None:
        attended: tuple[Tensor, Tensor | None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options
        )
        return attended
    packed = query.reshape(rows, key.shape[1], groups * new, width)  # (R, H', G * T, dh)
    mask = attention_mask.repeat(1, 1, groups, 1)  # (R, 1, G * T, S)
    read = F.scaled_dot_product_attention(packed, key, value, attn_mask=mask, scale=options.get("scaling"))
    return read.view(rows, heads, new, -1).transpose(1, 2).contiguous(), None
