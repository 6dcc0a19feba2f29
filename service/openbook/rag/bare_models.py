"""BART and DPR's question encoder as bare modules: what serving multiplies with, and nothing else.

transformers' own models take longer to import than all else at the start of a service, and serving does not need them:
`packed_encoder` and `bart_decoder` do the arithmetic. Bare models can be neither trained nor saved. A folder of any
other kind is read by transformers.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import BartConfig, DPRConfig, GenerationConfig, RagConfig

from openbook.rag.packed_encoder import BERT

GENERATOR = "rag.generator."
QUESTION_ENCODER = "rag.question_encoder."
# One tensor, under one of these names or several.
WORDS = tuple(
    f"{GENERATOR}{name}.weight"
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head")
)


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
    """The weights of a DPRQuestionEncoder under its names; it computes nothing by itself."""

    def __init__(self, config: DPRConfig) -> None:
        super().__init__()
        self.config = config
        d, inner, eps = config.hidden_size, config.intermediate_size, config.layer_norm_eps
        modules: dict[str, nn.Module] = {
            BERT.words: _EmptyEmbedding(config.vocab_size, d),
            BERT.places: _EmptyEmbedding(config.max_position_embeddings, d),
            str(BERT.kinds): _EmptyEmbedding(config.type_vocab_size, d),
            BERT.norm: nn.LayerNorm(d, eps=eps),
        }
        for number in range(config.num_hidden_layers):
            layer = f"{BERT.layers}.{number}"
            for name in (BERT.queries, BERT.keys, BERT.values, BERT.attended):
                modules[f"{layer}.{name}"] = _EmptyLinear(d, d)
            modules[f"{layer}.{BERT.fc1}"], modules[f"{layer}.{BERT.fc2}"] = (
                _EmptyLinear(d, inner),
                _EmptyLinear(inner, d),
            )
            for name in (BERT.attended_norm, BERT.last_norm):
                modules[f"{layer}.{name}"] = nn.LayerNorm(d, eps=eps)
        self.question_encoder = nn.Module()
        self.question_encoder.bert_model = nn.Module()
        for path, module in modules.items():
            _put(self.question_encoder.bert_model, path, module)
        if config.projection_dim:
            self.question_encoder.encode_proj = _EmptyLinear(d, config.projection_dim)


def _put(root: nn.Module, path: str, module: nn.Module) -> None:
    """Let `root.path` be the module."""
    *parents, name = path.split(".")
    for parent in parents:
        if parent not in dict(root.named_children()):
            root.add_module(parent, nn.Module())
        root = root.get_submodule(parent)
    root.add_module(name, module)


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
        copies: dict[int, Tensor] = {}  # a tensor that both models have, as openbook-mini-bart's words, is copied once
        _fill(dpr, tensors, lambda name: QUESTION_ENCODER + name, dtype, copies)
        _fill(bart, {**tensors, WORDS[0]: words[0]}, _name_in_bart, dtype, copies)
    except (KeyError, RuntimeError):
        return None
    bart.lm_head.weight = bart.decoder.embed_tokens.weight
    return Models(dpr.requires_grad_(False).eval(), bart.requires_grad_(False).eval(), bart.generation_config)


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
