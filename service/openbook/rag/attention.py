"""Scaled dot-product attention, in the faster of two ways.

two products    a softmax stands between them; its scores are rounded to the type of the queries
fused           torch's own kernel, which holds no scores: it saves memory, and time on a GPU
"""

import torch
import torch.nn.functional as F
from torch import Tensor

FEW_QUERIES = 64


def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    """Queries (N, H, T, dh) over keys and values (N, H, S, dh) -> (N, H, T, dh).

    `bias` is added to the scores, (N or 1, H or 1, T or 1, S): -inf where a query does not see a key. Two products for
    a processor's bfloat16, and for few queries on it.
    """
    on_processor = queries.device.type == "cpu"
    if not on_processor or (queries.dtype != torch.bfloat16 and queries.shape[2] >= FEW_QUERIES):
        return F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
    if queries.shape[2] >= FEW_QUERIES:
        # keys that stand together are read across; others would be copied across, which is slow
        keys = keys.contiguous()
    scores = torch.matmul(queries * queries.shape[-1] ** -0.5, keys.transpose(2, 3))  # (N, H, T, S)
    if bias is not None:
        scores += bias
    return torch.matmul(torch.softmax(scores, dim=-1), values)


def hide(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias that lets attention see what is True in `visible`; same shape."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)
