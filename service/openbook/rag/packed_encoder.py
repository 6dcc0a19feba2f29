"""Encoders over texts of any lengths, without a padded token: BERT, RoBERTa and its kin, MPNet and BART's encoder.

They normalise behind each sum, so one class reads them all: `ModuleNames` says where each keeps its weights. The tokens
of all texts follow one another, shortest text first: every product, norm and activation is over N real tokens. Only
attention looks at texts, those of one length together.

    R texts of L_r tokens, N the sum of them, H heads of dh dimensions, d = H * dh

Products take N' rows (`filled_rows`). The encoder appends the rows beyond N once, and drops them at the end.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openbook.rag.attention import attend
from openbook.rag.linear import Linear, filled_rows, make_linear, rearrange

TYPICAL_TOKENS = 800
# Tokens that are read at a time, or one text, and numbers that their attention holds: texts come from outside, and must
# not decide how much memory they take.
MAX_TOKENS = 8192
MAX_SCORES = 1 << 23
# MPNet's distances, either way: half as many buckets, the first half of them exact.
BUCKETS, FARTHEST = 32, 128


class ModuleNames(NamedTuple):
    """What a family calls its modules: those of the whole, and from `queries` on those of a layer."""

    words: str = "embeddings.word_embeddings"
    places: str = "embeddings.position_embeddings"
    kinds: str | None = "embeddings.token_type_embeddings"
    norm: str = "embeddings.LayerNorm"
    distances: str | None = None
    layers: str = "encoder.layer"
    queries: str = "attention.self.query"
    keys: str = "attention.self.key"
    values: str = "attention.self.value"
    attended: str = "attention.output.dense"
    attended_norm: str = "attention.output.LayerNorm"
    fc1: str = "intermediate.dense"
    activation: str = "intermediate.intermediate_act_fn"
    fc2: str = "output.dense"
    last_norm: str = "output.LayerNorm"


BERT = ModuleNames()
MPNET = ModuleNames(
    kinds=None,
    distances="encoder.relative_attention_bias",
    queries="attention.attn.q",
    keys="attention.attn.k",
    values="attention.attn.v",
    attended="attention.attn.o",
    attended_norm="attention.LayerNorm",
)
BART = ModuleNames(
    words="embed_tokens",
    places="embed_positions",
    kinds=None,
    norm="layernorm_embedding",
    layers="layers",
    queries="self_attn.q_proj",
    keys="self_attn.k_proj",
    values="self_attn.v_proj",
    attended="self_attn.out_proj",
    attended_norm="self_attn_layer_norm",
    fc1="fc1",
    activation="activation_fn",
    fc2="fc2",
    last_norm="final_layer_norm",
)
FAMILIES = {
    "bart": BART,
    "bert": BERT,
    "camembert": BERT,
    "dpr": BERT,
    "mpnet": MPNET,
    "roberta": BERT,
    "xlm-roberta": BERT,
}


def can_pack(model: Any) -> bool:
    """True for a model of these families, whole or bare and whatever stands on it, that is an encoder alone."""
    kind = model.config.model_type
    return kind in FAMILIES and kind != "bart" and not getattr(model.config, "is_decoder", False)


class _PackedLayer(NamedTuple):
    queries_keys_values: Linear
    attended: Linear
    attended_norm: nn.Module
    fc1: Linear
    fc2: Linear
    last_norm: nn.Module


class PackedEncoder:
    """The encoder of a model, its weights rearranged once. Holds nothing of any text."""

    def __init__(self, model: Any, *, int8: bool = False, dtype: torch.dtype | None = None, keep: bool = True) -> None:
        """`dtype` is that of all but int8 products; without it, the model's. Without `keep` the model gives its weights
        away: it can then neither compute, nor be saved or trained."""
        names, stack, config = FAMILIES[model.config.model_type], _stack_of(model), model.config
        dtype = dtype or model.dtype
        gelu = (config.activation_function if names is BART else config.hidden_act) == "gelu"

        def packed(layer: nn.Module, *paths: str, gelu: bool = False) -> Linear:
            layers: Any = [layer.get_submodule(path) for path in paths]
            return make_linear(
                layers, rows=TYPICAL_TOKENS, gelu=gelu, int8=int8, output=dtype if int8 else None, keep=keep
            )

        def own(path: str, of: nn.Module = stack) -> Any:
            module = of.get_submodule(path)
            return module if module.weight.dtype == dtype else deepcopy(module).to(dtype)

        self._heads: int = config.num_attention_heads
        self._words, self._norm = own(names.words), own(names.norm)
        table = own(names.places)
        # the first positions of some are padding's
        first: int = getattr(table, "offset", 0) if table.padding_idx is None else table.padding_idx + 1
        self._places: Tensor = table.weight[first:]  # (P, d)
        self._kinds: Tensor | None = None if names.kinds is None else own(names.kinds).weight  # (kinds, d)
        self._distances: Tensor | None = None if names.distances is None else own(names.distances).weight  # (32, H)
        self._layers = [
            _PackedLayer(
                packed(layer, names.queries, names.keys, names.values),
                packed(layer, names.attended),
                own(names.attended_norm, layer),
                packed(layer, names.fc1, gelu=gelu),
                packed(layer, names.fc2),
                own(names.last_norm, layer),
            )
            for layer in stack.get_submodule(names.layers).children()
        ]
        some_layer = next(stack.get_submodule(names.layers).children())
        self._activation: Callable[[Tensor], Tensor] | None = None if gelu else attrgetter(names.activation)(some_layer)
        if not keep and self._words is not stack.get_submodule(names.words):
            words: Any = stack.get_submodule(names.words)
            words.weight.data = words.weight.new_empty(0)

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]] = ()) -> list[Tensor]:
        """The states of the tokens of each row, (L_r, d) each. `kinds`, of the tokens of each, are 0 where none are
        given."""
        states: dict[int, Tensor] = {}
        for some in _passes([len(row) for row in rows]):
            read = self._read([rows[row] for row in some], [kinds[row] for row in some] if kinds else ())
            states |= zip(some, read, strict=True)
        return [states[row] for row in range(len(rows))]

    def _read(self, rows: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]]) -> Sequence[Tensor]:
        """The same of rows that are read together, the shortest first."""
        device = self._places.device
        lengths = [len(row) for row in rows]
        tokens = torch.tensor([token for row in rows for token in row], device=device)  # (N,)
        places = torch.tensor([place for length in lengths for place in range(length)], device=device)  # (N,)
        embedded = self._words(tokens)  # (N, d)
        # in transformers' order of sums
        if self._kinds is not None:
            of_tokens = torch.tensor([kind for row in kinds for kind in row] or [0], device=device)  # (N,) or (1,)
            embedded = embedded + self._kinds[of_tokens]
        embedded = self._norm(embedded + self._places[places])  # (N, d)
        x = F.pad(embedded, (0, 0, 0, filled_rows(len(embedded)) - len(embedded)))  # (N', d)
        groups = [(len(list(same)), length) for length, same in groupby(lengths)]
        biases = None if self._distances is None else _biases(self._distances, lengths[-1])  # (1, H, L, L)
        for layer in self._layers:
            read = self._attend(layer.queries_keys_values(x), groups, biases)  # (N', d)
            x = layer.attended_norm(layer.attended(read).add_(x))
            hidden = layer.fc1(x)  # (N', 4 d)
            x = layer.last_norm(layer.fc2(hidden if self._activation is None else self._activation(hidden)).add_(x))
        return torch.split(x[: len(tokens)], lengths)

    def _attend(self, projected: Tensor, groups: Sequence[tuple[int, int]], biases: Tensor | None) -> Tensor:
        """Attention within each text: queries, keys and values (N', 3 d) -> (N', d)."""
        read = projected.new_zeros(len(projected), projected.shape[-1] // 3)  # (N', d)
        first = 0
        for count, length in groups:
            bias = None if biases is None else biases[..., :length, :length]  # (1, H, L, L)
            most = max(1, MAX_SCORES // (self._heads * length * length))
            for texts in (min(most, count - done) for done in range(0, count, most)):
                some = slice(first, first + texts * length)
                split = projected[some].view(texts, length, 3, self._heads, -1)  # (R', L, 3, H, dh)
                queries, keys, values = split.permute(2, 0, 3, 1, 4)  # (R', H, L, dh) each
                of_group = attend(queries, keys, values, bias).transpose(1, 2)  # (R', L, H, dh)
                read[some].view(of_group.shape).copy_(of_group)
                first = some.stop
        return read


class PaddedEncoder:
    """Any other encoder of transformers, by its own forward."""

    def __init__(self, model: Any, pad: int, *, keep: bool = True) -> None:
        """`pad` is the token behind the end of a text. Without `keep` the model's weights are rearranged: it can then
        neither be saved nor trained."""
        if not keep:
            rearrange(model, rows=TYPICAL_TOKENS)
        self._model, self._pad = model, pad

    @torch.inference_mode()
    def __call__(self, rows: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]] = ()) -> list[Tensor]:
        """As `PackedEncoder` does; all rows are read at a time."""
        inputs = pad_inputs(rows, kinds, self._pad, self._model.device)
        states = self._model(**inputs).last_hidden_state  # (R, L, d)
        return [of_row[: len(row)] for row, of_row in zip(rows, states, strict=True)]


def pad_inputs(
    rows: Sequence[Sequence[int]], kinds: Sequence[Sequence[int]], pad: int, device: torch.device
) -> dict[str, Tensor]:
    """What the models of transformers take of R texts: (R, L) each. Without `kinds` none are among them."""
    parts = {"input_ids": (rows, pad), "attention_mask": ([[1] * len(row) for row in rows], 0)}
    if kinds:
        parts["token_type_ids"] = (kinds, 0)
    longest = max(len(row) for row in rows)
    return {
        name: torch.tensor([[*row, *([fill] * (longest - len(row)))] for row in values], device=device)
        for name, (values, fill) in parts.items()
    }


def pad_states(states: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The states of R texts, (L_r, d) each -> (R, L, d), zero behind the end of a text, and the mask (R, L), 1 on
    tokens."""
    lengths = torch.tensor([len(of_row) for of_row in states], device=states[0].device)  # (R,)
    padded = nn.utils.rnn.pad_sequence(list(states), batch_first=True)  # (R, L, d)
    mask = torch.arange(padded.shape[1], device=lengths.device) < lengths[:, None]  # (R, L)
    return padded, mask.long()


def _stack_of(model: Any) -> nn.Module:
    """What holds the embeddings and the layers of a model."""
    stack: nn.Module
    if model.config.model_type == "bart":
        stack = model.get_encoder()
    elif model.config.model_type == "dpr":
        stack = dpr_of(model).bert_model
    else:
        stack = model.base_model
    return stack


def dpr_of(model: Any) -> Any:
    """The BERT of a DPRQuestionEncoder or a DPRContextEncoder, with its projection where it has one."""
    return model.question_encoder if hasattr(model, "question_encoder") else model.ctx_encoder


def _passes(lengths: Sequence[int]) -> Iterator[list[int]]:
    """All rows, the shortest first, in parts of MAX_TOKENS at most or of one row."""
    part: list[int] = []
    tokens = 0
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if part and tokens + lengths[row] > MAX_TOKENS:
            yield part
            part, tokens = [], 0
        part.append(row)
        tokens += lengths[row]
    if part:
        yield part


def _biases(table: Tensor, length: int) -> Tensor:
    """What MPNet adds to the score of each query and key, by their distance: (32, H) -> (1, H, L, L)."""
    ways = BUCKETS // 2
    exact = ways // 2
    behind = torch.arange(length - 1, -length, -1, device=table.device)  # (2 L - 1,), query minus key
    far = behind.abs()
    log = torch.log(far.float() / exact) / math.log(FARTHEST / exact) * (ways - exact)
    buckets = torch.where(far < exact, far, (exact + log.long()).clamp_max(ways - 1)) + (behind < 0) * ways
    # a row of keys begins one distance later for each query
    return table[buckets].T.unfold(1, length, 1).flip(1)[None]
