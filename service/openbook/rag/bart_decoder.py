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
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import BartForConditionalGeneration, PreTrainedModel

from openbook.rag.attention import attend, hide
from openbook.rag.decoder import BetweenSteps, Targets, next_token_logits, nothing, slices
from openbook.rag.linear import Linear, make_linear
from openbook.rag.target_tree import grow_trees

TYPICAL_ROWS = 20
TYPICAL_TOKENS = 800
FIRST_CAPACITY = 32


def can_step(model: PreTrainedModel) -> bool:
    """True for BART itself; its relatives differ in where they normalise, and take the general way."""
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
    """The decoder of a BartForConditionalGeneration, its weights rearranged once. Holds nothing of any decoding."""

    def __init__(self, model: PreTrainedModel, *, int8: bool = False, keep: bool = True) -> None:
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

    The self-attention cache of all layers is one tensor, (capacity, Y, 2, N, H, dh). Time comes first: the part in use
    is one piece, and following the beams is one copy into a second tensor of that shape.
    """

    def __init__(self, decoder: BartDecoder, prefix: tuple[int, ...], states: Tensor, mask: Tensor) -> None:
        self._decoder = decoder
        padded = not bool(mask.all())
        self._hidden = hide(mask.bool()[:, None, None, :], states.dtype) if padded else None  # (R, 1, 1, L)
        self._cross = _read_passages(decoder, states, mask if padded else None)
        self._length = 0  # t
        rows = states.shape[0]
        self._cache = self._room(states, rows, max(FIRST_CAPACITY, len(prefix)))  # (c, Y, 2, N, H, dh)
        self._spare: Tensor | None = None
        tokens = torch.tensor([prefix] * rows, device=states.device)[:, None]  # (R, 1, P)
        self.logits = self._words(self._step(tokens)[:, :, -1])  # (R, 1, V)

    def advance(self, sources: Tensor, tokens: Tensor) -> None:
        rows, beams = tokens.shape
        self._reorder(sources)
        self.logits = self._words(self._step(tokens[..., None])).view(rows, beams, -1)  # (R, B, V)

    def branch(self, rows: Sequence[int]) -> "BartState":
        first, count = rows[0], len(rows)
        together = list(rows) == list(range(first, first + count))
        # rows that stand together are looked at where they are; others are copied
        chosen = slice(first, first + count) if together else list(rows)
        beams = self.logits.shape[1]
        other = BartState.__new__(BartState)
        other._decoder = self._decoder
        other._hidden = None if self._hidden is None else self._hidden[chosen]
        other._cross = [(keys[chosen], values[chosen]) for keys, values in self._cross]
        other._length = self._length
        # a step writes into the cache: that alone is copied
        cached = self._cache.view(*self._cache.shape[:3], -1, beams, *self._cache.shape[4:])[:, :, :, chosen]
        cached = cached.flatten(3, 4)  # (c, Y, 2, R' * B, H, dh)
        other._cache = cached.clone() if together else cached
        other._spare = None
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
            self._make_room(len(tree.tokens))
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

    def _room(self, like: Tensor, hypotheses: int, capacity: int) -> Tensor:
        heads = self._decoder.heads
        return like.new_empty(
            capacity, len(self._decoder.layers), 2, hypotheses, heads, like.shape[-1] // heads
        )  # (c, Y, 2, N, H, dh)

    def _make_room(self, new: int) -> None:
        """Let the cache hold `new` more tokens."""
        needed = self._length + new
        if needed > self._cache.shape[0]:
            larger = self._cache.new_empty(max(needed, 2 * self._cache.shape[0]), *self._cache.shape[1:])
            larger[: self._length] = self._cache[: self._length]
            self._cache, self._spare = larger, None

    def _reorder(self, sources: Tensor) -> None:
        """Let each hypothesis take the cache of the one that it continues: sources (R, B)."""
        rows, beams = sources.shape
        before = self.logits.shape[1]
        if before == beams == 1:
            return
        chosen = (sources + torch.arange(rows, device=sources.device)[:, None] * before).flatten()  # (N,)
        if self._spare is None or self._spare.shape[3] != len(chosen) or len(self._spare) != len(self._cache):
            self._spare = self._cache.new_empty(*self._cache.shape[:3], len(chosen), *self._cache.shape[4:])
        torch.index_select(self._cache[: self._length], 3, chosen, out=self._spare[: self._length])
        self._cache, self._spare = self._spare, self._cache

    def _step(self, tokens: Tensor, positions: Tensor | None = None, visible: Tensor | None = None) -> Tensor:
        """Read T new tokens of each hypothesis: (R, B, T) -> (R, B, T, d).

        Each follows the one before it and sees all before it, unless `positions` (T,) and `visible` (T, t + T) say
        otherwise.
        """
        rows, beams, new = tokens.shape
        self._make_room(new)
        end = self._length + new
        if positions is None:
            positions = torch.arange(self._length, end, device=tokens.device)  # (T,)
            if new > 1:  # a lone new token sees all that is cached and itself
                visible = positions[:, None] >= torch.arange(end, device=tokens.device)  # (T, t + T)
        x = self._decoder.embed(tokens, positions).view(rows, beams * new, -1)  # (R, B * T, d)
        hidden = None if visible is None else hide(visible, x.dtype)  # (T, t + T)
        for number, layer in enumerate(self._decoder.layers):
            x = layer.own_norm(layer.own_out(self._read_own(number, layer, x, new, hidden)).add_(x))
            x = layer.cross_norm(layer.cross_out(self._read_passage(number, layer, x)).add_(x))
            inner = layer.fc1(x)  # (R, B * T, 4 d)
            x = layer.norm(layer.fc2(inner if layer.activation is None else layer.activation(inner)).add_(x))
        self._length = end
        return x.view(rows, beams, new, -1)

    def _read_own(self, number: int, layer: _Layer, x: Tensor, new: int, hidden: Tensor | None) -> Tensor:
        """(R, B * T, d) -> (R, B * T, d), over what the hypothesis has said so far."""
        end = self._length + new
        projected = layer.own_queries_keys_values(x).view(-1, new, 3, self._decoder.heads, self._cache.shape[-1])
        self._cache[self._length : end, number] = projected[:, :, 1:].permute(1, 2, 0, 3, 4)  # (T, 2, N, H, dh)
        keys, values = self._cache[:end, number].permute(1, 2, 3, 0, 4)  # (N, H, t + T, dh) each
        read = attend(projected[:, :, 0].transpose(1, 2), keys, values, hidden)  # (N, H, T, dh)
        return read.transpose(1, 2).reshape(x.shape)

    def _read_passage(self, number: int, layer: _Layer, x: Tensor) -> Tensor:
        """(R, B * T, d) -> (R, B * T, d), over the row's passage, all hypotheses at once."""
        keys, values = self._cross[number]  # (R, H, L, dh)
        queries = (
            layer.cross_queries(x).view(*x.shape[:2], self._decoder.heads, -1).transpose(1, 2)
        )  # (R, H, B * T, dh)
        read = attend(queries, keys, values, self._hidden)  # (R, H, B * T, dh)
        return read.transpose(1, 2).reshape(x.shape)


def _read_passages(decoder: BartDecoder, states: Tensor, mask: Tensor | None) -> list[tuple[Tensor, Tensor]]:
    """Keys and values of each layer, (R, H, L, dh) each; padding, where there is any, is not multiplied."""
    rows, length, d = states.shape
    tokens = None if mask is None else mask.flatten().nonzero()[:, 0]  # (N,)
    flat = states.flatten(0, 1) if tokens is None else states.flatten(0, 1)[tokens]  # (N, d)
    read = []
    for layer in decoder.layers:
        projected = layer.cross_keys_values(flat)  # (N, 2 d)
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
