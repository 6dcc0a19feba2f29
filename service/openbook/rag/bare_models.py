"""BART and DPR's question encoder as bare modules: what serving multiplies with, and nothing else.

transformers' own models take longer to import than all else at the start of a service, and serving does not need them:
`bart_encoder` and `bart_decoder` do BART's arithmetic, and BERT's is below. Bare models can be neither trained nor
saved. A folder of any other kind is read by transformers.

    B questions, S tokens, H heads of dh dimensions, d = H * dh
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import BartConfig, DPRConfig, GenerationConfig, RagConfig

GENERATOR = "rag.generator."
QUESTION_ENCODER = "rag.question_encoder.question_encoder."
# One tensor, under one of these names or several.
WORDS = tuple(
    f"{GENERATOR}{name}.weight"
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
)
# What a module of `BareDpr` is called in a folder of transformers.
BERT_NAMES = {
    "proj": "encode_proj",
    "words": "bert_model.embeddings.word_embeddings",
    "positions": "bert_model.embeddings.position_embeddings",
    "kinds": "bert_model.embeddings.token_type_embeddings",
    "norm": "bert_model.embeddings.LayerNorm",
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attended": "attention.output.dense",
    "attended_norm": "attention.output.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "fc2_norm": "output.LayerNorm",
}


class Models(NamedTuple):
    """The two models of a RAG folder, and how the generator is asked where the folder does not say it."""

    question_encoder: Any
    generator: Any
    generation: GenerationConfig


class _EmptyLinear(nn.Linear):
    def reset_parameters(self) -> None:
        """Nothing: weights are read. To draw some for no memory, torch would import its compiler."""


class _EmptyEmbedding(nn.Embedding):
    def reset_parameters(self) -> None:
        """Nothing, as above."""


class _Bare(nn.Module):
    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype


class BareBart(_Bare):
    """The weights of a BartForConditionalGeneration under its names; it computes nothing by itself."""

    def __init__(self, config: BartConfig) -> None:
        super().__init__()
        self.config = config
        self.generation_config = GenerationConfig.from_model_config(config)
        words = _EmptyEmbedding(config.vocab_size, config.d_model)
        self.encoder = _Stack(words, config, config.encoder_layers, config.encoder_ffn_dim, reads=False)
        self.decoder = _Stack(words, config, config.decoder_layers, config.decoder_ffn_dim, reads=True)
        self.lm_head = _EmptyLinear(config.d_model, config.vocab_size, bias=False)
        self.final_logits_bias = nn.Buffer(torch.zeros(1, config.vocab_size))

    def get_encoder(self) -> nn.Module:
        return self.encoder

    def get_decoder(self) -> nn.Module:
        return self.decoder


class _Stack(nn.Module):
    def __init__(self, words: _EmptyEmbedding, config: BartConfig, layers: int, inner: int, *, reads: bool) -> None:
        super().__init__()
        self.embed_tokens = words
        self.embed_positions = _Positions(config.max_position_embeddings + _Positions.offset, config.d_model)
        self.layers = nn.ModuleList(_BartLayer(config.d_model, inner, reads) for _ in range(layers))
        self.layernorm_embedding = nn.LayerNorm(config.d_model)


class _Positions(_EmptyEmbedding):
    offset = 2


class _BartLayer(nn.Module):
    def __init__(self, d: int, inner: int, reads: bool) -> None:
        super().__init__()
        self.self_attn, self.self_attn_layer_norm = _BartAttention(d), nn.LayerNorm(d)
        if reads:
            self.encoder_attn, self.encoder_attn_layer_norm = _BartAttention(d), nn.LayerNorm(d)
        self.fc1, self.fc2 = _EmptyLinear(d, inner), _EmptyLinear(inner, d)
        self.final_layer_norm = nn.LayerNorm(d)


class _BartAttention(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.q_proj, self.k_proj = _EmptyLinear(d, d), _EmptyLinear(d, d)
        self.v_proj, self.out_proj = _EmptyLinear(d, d), _EmptyLinear(d, d)


class BareDpr(_Bare):
    """A DPRQuestionEncoder: BERT, whose state of the first token is the vector."""

    def __init__(self, config: DPRConfig) -> None:
        super().__init__()
        self.config = config
        d = config.hidden_size
        self.words = _EmptyEmbedding(config.vocab_size, d)
        self.positions = _EmptyEmbedding(config.max_position_embeddings, d)
        self.kinds = _EmptyEmbedding(config.type_vocab_size, d)
        self.norm = nn.LayerNorm(d, eps=config.layer_norm_eps)
        self.layers = nn.ModuleList(_BertLayer(config) for _ in range(config.num_hidden_layers))
        self.proj = _EmptyLinear(d, config.projection_dim) if config.projection_dim else None

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor]:
        """Tokens (B, S), padded on the right, and their mask (B, S) -> vectors (B, d), as transformers hands them."""
        places = self.positions.weight[: input_ids.shape[1]]  # (S, d)
        # in transformers' order of sums
        x = self.norm(self.words(input_ids) + self.kinds.weight[0] + places)  # (B, S, d)
        visible = None if bool(attention_mask.all()) else attention_mask.bool()[:, None, None]  # (B, 1, 1, S)
        for layer in self.layers:
            x = layer(x, visible)
        first = x[:, 0]  # (B, d)
        return (first if self.proj is None else self.proj(first),)


class _BertLayer(nn.Module):
    def __init__(self, config: DPRConfig) -> None:
        super().__init__()
        d, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        self._heads = config.num_attention_heads
        self.query, self.key, self.value = _EmptyLinear(d, d), _EmptyLinear(d, d), _EmptyLinear(d, d)
        self.attended, self.attended_norm = _EmptyLinear(d, d), nn.LayerNorm(d, eps=eps)
        self.fc1, self.fc2, self.fc2_norm = _EmptyLinear(d, inner), _EmptyLinear(inner, d), nn.LayerNorm(d, eps=eps)

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        """(B, S, d) -> (B, S, d)."""
        queries, keys, values = (
            made(x).view(*x.shape[:2], self._heads, -1).transpose(1, 2) for made in (self.query, self.key, self.value)
        )  # (B, H, S, dh) each
        read = F.scaled_dot_product_attention(queries, keys, values, attn_mask=visible)  # (B, H, S, dh)
        read = read.transpose(1, 2).reshape(x.shape)  # (B, S, d)
        x = self.attended_norm(self.attended(read) + x)
        return self.fc2_norm(self.fc2(F.gelu(self.fc1(x))) + x)  # type: ignore[no-any-return]


def bare_models(config: RagConfig, tensors: Mapping[str, Tensor], dtype: torch.dtype) -> Models | None:
    """Both models in evaluation mode, with copies of the tensors.

    None for models of another kind, and for tensors of other names or shapes: transformers may know better, or says
    what is wrong with them.
    """
    questions, generator = config.question_encoder, config.generator
    if (questions.model_type, generator.model_type) != ("dpr", "bart"):
        return None
    if (questions.hidden_act, generator.activation_function) != ("gelu", "gelu") or questions.is_decoder:
        return None
    if generator.scale_embedding or not generator.tie_word_embeddings:
        return None
    words = [tensors[name] for name in WORDS if name in tensors]
    if not words or not all(other is words[0] or torch.equal(other, words[0]) for other in words):
        return None
    with torch.device("meta"):
        dpr, bart = BareDpr(questions), BareBart(generator)
    try:
        copies: dict[int, Tensor] = {}  # a tensor that both models have, as openbook-mini's words, is copied once
        _fill(dpr, tensors, _name_in_dpr, dtype, copies)
        _fill(bart, {**tensors, WORDS[0]: words[0]}, _name_in_bart, dtype, copies)
    except (KeyError, RuntimeError):
        return None
    bart.lm_head.weight = bart.decoder.embed_tokens.weight
    return Models(dpr.requires_grad_(False).eval(), bart.requires_grad_(False).eval(), bart.generation_config)


def _name_in_dpr(name: str) -> str:
    path, _, kind = name.rpartition(".")
    layer = re.fullmatch(r"layers\.(\d+)\.(\w+)", path)
    own = BERT_NAMES[layer[2]] if layer else BERT_NAMES[path]
    return QUESTION_ENCODER + (f"bert_model.encoder.layer.{layer[1]}." if layer else "") + f"{own}.{kind}"


def _name_in_bart(name: str) -> str:
    if name == "final_logits_bias":
        return GENERATOR + name
    words = name == "lm_head.weight" or name.endswith("embed_tokens.weight")
    return WORDS[0] if words else f"{GENERATOR}model.{name}"


def _fill(
    module: nn.Module,
    tensors: Mapping[str, Tensor],
    name_of: Callable[[str], str],
    dtype: torch.dtype,
    copies: dict[int, Tensor],
) -> None:
    """`copies` receives what is copied, by the id of its tensor.

    Raises KeyError for a tensor that is missing, RuntimeError for one of another shape.
    """
    sources = {name: tensors[name_of(name)] for name in module.state_dict()}
    for source in sources.values():
        if id(source) not in copies:
            # a file that somebody replaces while it is mapped would end the process
            copies[id(source)] = source.to(dtype, copy=True)
    module.load_state_dict({name: copies[id(source)] for name, source in sources.items()}, assign=True)
