"""Scaled dot-product attention, in the faster of two ways.

    two products    a softmax stands between them; its scores are rounded to the type of the queries
    fused           torch's own kernel, which holds no scores: it saves memory, and time on a GPU

Which one a processor computes faster depends on its instructions, on the type and on the number of queries.
`make_attention` tries them.
"""

from collections.abc import Callable
from functools import partial
from itertools import cycle
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from openbook.rag.products import Products

FEW_QUERIES = 64
# What is tried: a greedy step, one of four beams, and an encoder, each over five passages.
TRIED_QUERIES = (1, 4, 160)
TRIED_ROWS, TRIED_KEYS, TRIED_LAYERS = 5, 160, 4


class Attention(Protocol):
    """Queries (N, H, T, dh) over keys and values (N, H, S, dh) -> (N, H, T, dh).

    `bias` is added to the scores, (N or 1, 1, T or 1, S): 0 where a query sees a key, -inf where it does not.
    """

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor: ...


def attend(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    """An `Attention` that tries nothing: two products for a processor's bfloat16, and for few queries on it."""
    on_processor = queries.device.type == "cpu"
    if on_processor and (queries.dtype == torch.bfloat16 or queries.shape[2] < FEW_QUERIES):
        return _two_products(queries, keys, values, bias)
    return _fused(queries, keys, values, bias)


def make_attention(
    heads: int, width: int, dtype: torch.dtype, device: torch.device, products: Products | None
) -> Attention:
    """The faster way for one query, for few and for many, of `heads` heads of `width` dimensions."""
    if products is None or device.type != "cpu":
        return attend
    one, few, many = (_choose(queries, heads, width, dtype, products) for queries in TRIED_QUERIES)

    def chosen(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
        count = queries.shape[2]
        way = one if count == 1 else few if count < FEW_QUERIES else many
        return way(queries, keys, values, bias)

    return chosen


def _choose(queries: int, heads: int, width: int, dtype: torch.dtype, products: Products) -> Attention:
    ways: dict[str, Attention] = {"two products": _two_products, "fused": _fused}
    if dtype != torch.bfloat16 and queries >= FEW_QUERIES:
        ways = {"fused": _fused, "two products": _two_products}

    def made(way: Attention) -> Callable[[Tensor], Tensor]:
        # each call takes the next layer's keys and values: those of one layer alone would stay in the cache
        layers = torch.randn(TRIED_LAYERS, 2, TRIED_ROWS, heads, TRIED_KEYS, width).to(dtype)  # (Y, 2, N, H, S, dh)
        turns = cycle(layers)
        return lambda asked: way(asked, *next(turns))

    name = f"attention {str(dtype).removeprefix('torch.')} {heads}x{width}, {queries} queries"
    tried = torch.randn(TRIED_ROWS, heads, queries, width).to(dtype)  # (N, H, T, dh)
    return ways[products.choose(name, {one: partial(made, way) for one, way in ways.items()}, [tried])]


def _two_products(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    if queries.shape[2] >= FEW_QUERIES:
        # keys that stand together are read across; others would be copied across, which is slow
        keys = keys.contiguous()
    scores = torch.matmul(queries * queries.shape[-1] ** -0.5, keys.transpose(2, 3))  # (N, H, T, S)
    if bias is not None:
        scores += bias
    return torch.matmul(torch.softmax(scores, dim=-1), values)


def _fused(queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias)


def hide(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """The bias that lets attention see what is True in `visible`; same shape."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(~visible, -torch.inf)
