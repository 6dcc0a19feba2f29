"""BART's decoder, stepped without waste.

transformers repeats a passage's cross-attention keys and values for every beam and copies them at each reordering,
though all beams of a row read the same passage. Here they are computed once per row, and the beams of the row are the
queries of one attention:

    self-attention    (R * B, H, T, dh)   queries and cache of each hypothesis
    cross-attention   (R, H, B * T, dh)   against (R, H, L, dh), never copied

R rows, B beams, N = R * B hypotheses, T new tokens, t cached, L source tokens, H heads of dh dimensions, d = H * dh,
Y layers. The arithmetic is BART's own (post-layer-norm), with the model's own parameters.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from openbook.rag.attention import attend, hide
from openbook.rag.bare_models import BareBart
from openbook.rag.decoder import (
    MAX_HYPOTHESES,
    BetweenSteps,
    Targets,
    groups_of,
    next_token_logits,
    nothing,
    slices,
)
from openbook.rag.linear import Linear, fill_up, make_linear
from openbook.rag.target_tree import grow_trees

TYPICAL_ROWS = 20
TYPICAL_TOKENS = 800
FIRST_SLOTS = 32


def can_step(model: Any) -> bool:
    """True for BART itself; its relatives differ in where they normalise, and take the general way."""
    if isinstance(model, BareBart):
        return True
    from transformers import BartForConditionalGeneration

    return type(model) is BartForConditionalGeneration


class _Layer:
    """One layer's products; `norms` are the model's own."""

    def __init__(self, layer: Any, gelu: bool, int8: bool, keep: bool) -> None:
        def packed(*layers: Any, rows: int = TYPICAL_ROWS, gelu: bool = False) -> Linear:
            return make_linear(layers, rows=rows, gelu=gelu, int8=int8, keep=keep)

        own, cross = layer.self_attn, layer.encoder_attn
        self.own_queries_keys_values = packed(own.q_proj, own.k_proj, own.v_proj)
        self.own_out = packed(own.out_proj)
        self.cross_queries = packed(cross.q_proj)
        self.cross_keys_values = packed(cross.k_proj, cross.v_proj, rows=TYPICAL_TOKENS)
        self.cross_out = packed(cross.out_proj)
        self.fc1 = packed(layer.fc1, gelu=gelu)
        self.fc2 = packed(layer.fc2)
        self.activation = None if gelu else layer.activation_fn
        self.own_norm, self.cross_norm, self.norm = (
            layer.self_attn_layer_norm,
            layer.encoder_attn_layer_norm,
            layer.final_layer_norm,
        )


class BartDecoder:
    """The decoder of a BART, whole or bare, its weights rearranged once. Holds nothing of any decoding."""

    def __init__(self, model: Any, *, int8: bool = False, keep: bool = True) -> None:
        decoder: Any = model.get_decoder()
        self.heads: int = model.config.decoder_attention_heads
        gelu = model.config.activation_function == "gelu"
        self.layers = [_Layer(layer, gelu, int8, keep) for layer in decoder.layers]
        # its weights are those of the word embeddings, which are looked up as they are
        bias: Tensor = model.final_logits_bias[0].detach().clone()  # (V,)
        self.words = make_linear([model.lm_head], rows=TYPICAL_ROWS, int8=int8, output=torch.float32, bias=bias)
        self._decoder = decoder

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """(R, B, T) at positions (T,) -> (R, B, T, d)."""
        table = self._decoder.embed_positions
        places = F.embedding(positions + table.offset, table.weight)  # (T, d)
        embedded: Tensor = self._decoder.layernorm_embedding(self._decoder.embed_tokens(tokens) + places)
        return embedded


class BartState:
    """A `DecoderState` of a BartForConditionalGeneration.

    The hypotheses of a row are the paths of a tree of tokens: they share their beginning. The self-attention cache
    keeps the keys and values of each token once, in one of the S slots of its row, and a path lists the slots of its
    tokens. Following the beams copies paths, not keys. A token that no path holds gives its slot to a new one, so the
    cache grows with the tokens of the tree and not with R * B * t.
    """

    def __init__(self, decoder: BartDecoder, prefix: tuple[int, ...], states: Tensor, mask: Tensor) -> None:
        self._decoder = decoder
        padded = not bool(mask.all())
        self._hidden = hide(mask.bool()[:, None, None, :], states.dtype) if padded else None  # (R, 1, 1, L)
        self._cross = _read_passages(decoder, states, mask if padded else None)
        self._length = 0  # t
        rows, _, d = states.shape
        slots = max(FIRST_SLOTS, len(prefix))
        self._cache = states.new_empty(len(decoder.layers), 2, slots, rows, d)  # (Y, 2, S, R, d)
        self._paths: Tensor | None = None  # (R, B, t); None while B is 1, and token i is in slot i
        tokens = torch.tensor([prefix] * rows, device=states.device)[:, None]  # (R, 1, P)
        self.logits = self._words(self._step(tokens)[:, :, -1])  # (R, 1, V)

    def advance(self, sources: Tensor, tokens: Tensor) -> None:
        if self._paths is not None or sources.shape[1] > 1:
            self._follow_beams(sources)
        # two of the largest tensor of a step are never in memory together
        self.logits = self.logits.new_empty(0)
        self.logits = self._words(self._step(tokens[..., None])[:, :, 0])  # (R, B, V)

    def read(self, tokens: Sequence[int]) -> Tensor:
        ids = torch.tensor(list(tokens), device=self.logits.device).expand(self.logits.shape[0], 1, -1)  # (R, 1, T)
        return self._words(self._step(ids)[:, 0])  # (R, T, V)

    def forget(self, count: int) -> None:
        self._length -= count

    def branch(self, rows: Sequence[int]) -> "BartState":
        first, count = rows[0], len(rows)
        together = list(rows) == list(range(first, first + count))
        # rows that stand together are looked at where they are; others are copied
        chosen = slice(first, first + count) if together else list(rows)
        other = copy(self)
        other._hidden = None if self._hidden is None else self._hidden[chosen]
        other._cross = [(keys[chosen], values[chosen]) for keys, values in self._cross]
        other._paths = None if self._paths is None else self._paths[chosen]
        # a step writes into the cache: that alone is always copied
        used = self._length if self._paths is None else self._cache.shape[2]
        other._cache = self._cache.new_empty(*self._cache.shape[:3], count, self._cache.shape[-1])
        other._cache[:, :, :used] = self._cache[:, :, :used, chosen]
        other.logits = self.logits[chosen]
        return other

    def follow(self, targets: Targets, between_steps: BetweenSteps = nothing) -> list[Tensor]:
        """Read each prefix that targets share once: targets are the paths of a tree, whose tokens see their ancestors.

        All rows read the same tree.
        """
        rows = self.logits.shape[0]
        first = _log_softmax_at(self.logits, [0] * len(targets), [target[0] for target in targets])  # (R, C)
        followed = [first.new_empty(rows, len(target)) for target in targets]
        for number in range(len(targets)):
            followed[number][:, 0] = first[:, number]
        before = self._length
        for tree in grow_trees(targets):
            self._length = before
            self._make_room(before + len(tree.tokens))
            tokens = torch.tensor(tree.tokens, device=first.device).expand(rows, 1, -1)  # (R, 1, M)
            positions = torch.tensor(tree.depths, device=first.device) + before  # (M,)
            ancestors = tree.ancestors().to(first.device)  # (M, M)
            prefix = ancestors.new_ones(len(tree.tokens), before)  # (M, t)
            visible = torch.cat([prefix, ancestors], dim=1)  # (M, t + M)
            for some in slices(len(tree.tokens), rows * self.logits.shape[-1]):
                between_steps()
                seen = visible[some, : self._length + some.stop - some.start]  # (S, t + S)
                logits = self._words(self._step(tokens[..., some], positions[some], seen)[:, 0])  # (R, S, V)
                asked = [one for one in tree.asked if some.start <= one.node < some.stop]
                log_probs = _log_softmax_at(
                    logits, [one.node - some.start for one in asked], [one.token for one in asked]
                )
                for place, one in enumerate(asked):
                    for target in one.targets:
                        followed[target][:, one.position] = log_probs[:, place]
        return followed

    def _words(self, x: Tensor) -> Tensor:
        """(..., d) -> logits (..., V)."""
        return next_token_logits(self._decoder.words(x))

    def _make_room(self, slots: int) -> None:
        """Let each row have this many slots at least."""
        before = self._cache.shape[2]
        if slots > before:
            layers, _, _, rows, d = self._cache.shape
            larger = self._cache.new_empty(layers, 2, max(slots, 2 * before), rows, d)
            larger[:, :, :before] = self._cache
            self._cache = larger

    def _follow_beams(self, sources: Tensor) -> None:
        """Let each hypothesis continue the path of its source, sources (R, B), with a slot for its next token."""
        rows, beams = sources.shape
        before = self._paths
        if before is None:
            before = torch.arange(self._length, device=sources.device).expand(rows, 1, -1)  # (R, 1, t)
        paths = before.gather(1, sources[..., None].expand(-1, -1, self._length))  # (R, B, t)
        taken = torch.zeros(rows, self._cache.shape[2], dtype=torch.uint8, device=sources.device)  # (R, S)
        taken.scatter_(1, paths.flatten(1), 1)
        self._make_room(int(taken.sum(dim=1).max()) + beams)
        taken = F.pad(taken, (0, self._cache.shape[2] - taken.shape[1]))
        free = taken.argsort(dim=1, stable=True)[:, :beams]  # (R, B), the lowest first
        self._paths = torch.cat([paths, free[..., None]], dim=-1)  # (R, B, t + 1)

    def _step(self, tokens: Tensor, positions: Tensor | None = None, visible: Tensor | None = None) -> Tensor:
        """Read T new tokens of each hypothesis: (R, B, T) -> (R, B, T, d). T is 1 where B is not.

        Each follows the one before it and sees all before it, unless `positions` (T,) and `visible` (T, t + T) say
        otherwise. At most MAX_HYPOTHESES are read at a time, which bounds what attention holds in memory.
        """
        rows, beams, new = tokens.shape
        end = self._length + new
        self._make_room(end)
        if positions is None:
            positions = torch.arange(self._length, end, device=tokens.device)  # (T,)
            if new > 1:  # a lone new token sees all that is cached and itself
                visible = positions[:, None] >= torch.arange(end, device=tokens.device)  # (T, t + T)
        hidden = None if visible is None else hide(visible, self._cache.dtype)  # (T, t + T)
        parts = [
            self._step_rows(slice(some.start, some.stop), tokens, positions, hidden)
            for some in groups_of(range(rows), MAX_HYPOTHESES // beams)
        ]
        self._length = end
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _step_rows(self, some: slice, tokens: Tensor, positions: Tensor, hidden: Tensor | None) -> Tensor:
        """The same of R' rows of all: tokens (R, B, T) -> (R', B, T, d)."""
        tokens = tokens[some]
        rows, beams, new = tokens.shape
        slots = None if self._paths is None else self._slots_in_cache(self._paths[some], some.start)  # (t + 1, N)
        x = self._decoder.embed(tokens, positions).view(rows, beams * new, -1)  # (R', B * T, d)
        for cache, cross, layer in zip(self._cache, self._cross, self._decoder.layers, strict=True):
            own = layer.own_queries_keys_values(x).view(rows * beams, new, 3, -1)  # (N, T, 3, d)
            if slots is None:
                keys_values = cache[:, : self._length + new, some]  # (2, t + T, R', d)
                keys_values[:, self._length :] = own[:, :, 1:].permute(2, 1, 0, 3)
            else:
                flat = cache.flatten(1, 2)  # (2, S * R, d)
                flat[:, slots[-1]] = own[:, 0, 1:].transpose(0, 1)  # (2, N, d)
                keys_values = flat[:, slots]  # (2, t + 1, N, d)
            keys, values = self._heads(keys_values).permute(0, 2, 3, 1, 4)  # (N, H, t + T, dh) each
            queries = self._heads(own[:, :, 0]).transpose(1, 2)  # (N, H, T, dh)
            read = attend(queries, keys, values, hidden).transpose(1, 2).reshape(x.shape)
            x = layer.own_norm(layer.own_out(read).add_(x))
            x = layer.cross_norm(layer.cross_out(self._read_passage(layer, cross, some, x)).add_(x))
            inner = layer.fc1(x)  # (R', B * T, 4 d)
            x = layer.norm(layer.fc2(inner if layer.activation is None else layer.activation(inner)).add_(x))
        return x.view(rows, beams, new, -1)

    def _slots_in_cache(self, paths: Tensor, first_row: int) -> Tensor:
        """Where the tokens of paths (R', B, t) lie among the S * R of the cache: (t, R' * B)."""
        rows = torch.arange(first_row, first_row + len(paths), device=paths.device)  # (R',)
        return (paths * self._cache.shape[3] + rows[:, None, None]).permute(2, 0, 1).flatten(1)

    def _heads(self, x: Tensor) -> Tensor:
        """(..., d) -> (..., H, dh)."""
        return x.view(*x.shape[:-1], self._decoder.heads, -1)

    def _read_passage(self, layer: _Layer, cross: tuple[Tensor, Tensor], some: slice, x: Tensor) -> Tensor:
        """(R', B * T, d) -> (R', B * T, d), over the row's passage, all hypotheses at once."""
        keys, values = cross  # (R, H, L, dh)
        queries = self._heads(layer.cross_queries(x)).transpose(1, 2)  # (R', H, B * T, dh)
        hidden = None if self._hidden is None else self._hidden[some]  # (R', 1, 1, L)
        read = attend(queries, keys[some], values[some], hidden)  # (R', H, B * T, dh)
        return read.transpose(1, 2).reshape(x.shape)


def _read_passages(decoder: BartDecoder, states: Tensor, mask: Tensor | None) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of each layer, (R, H, L, dh) each; padding, where there is any, is not multiplied."""
    rows, length, d = states.shape
    tokens = None if mask is None else mask.flatten().nonzero()[:, 0]  # (N,)
    flat = states.flatten(0, 1) if tokens is None else states.flatten(0, 1)[tokens]  # (N, d)
    filled, count = fill_up(flat)  # (N', d)
    read = []
    for layer in decoder.layers:
        projected = layer.cross_keys_values(filled)[:count]  # (N, 2 d)
        if tokens is not None:
            # zeros, not what is in memory: a masked nan is still a nan
            projected = projected.new_zeros(rows * length, 2 * d).index_copy_(0, tokens, projected)  # (R * L, 2 d)
        split = projected.view(rows, length, 2, decoder.heads, -1).permute(2, 0, 3, 1, 4)  # (2, R, H, L, dh)
        read.append((split[0].contiguous(), split[1].contiguous()))
    return read


def _log_softmax_at(logits: Tensor, places: Sequence[int], tokens: Sequence[int]) -> Tensor:
    """log p of some tokens at some places, each place's whole vocabulary counted: (R, S, V) -> (R, E)."""
    at = torch.tensor(places, dtype=torch.long, device=logits.device)  # (E,)
    chosen = torch.tensor(tokens, dtype=torch.long, device=logits.device)  # (E,)
    return logits[:, at, chosen] - torch.logsumexp(logits, dim=-1)[:, at]
