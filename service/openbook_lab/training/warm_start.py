"""Start a BART-shaped generator and a DPR question encoder from the weights of one BERT-like encoder.

BART normalises after each block as BERT does, so a BERT is a BART encoder under other names: the warm-started
encoder gives the BERT's hidden states, but for LayerNorm's epsilon (1e-5 in BART, 1e-12 in BERT). RoBERTa is the same
network; it counts positions from 2 as BART does. Other encoders are refused: those with relative positions (MPNet,
DeBERTa), with normalisation before the block, or without BERT's blocks.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from transformers import (
    AutoModel,
    AutoTokenizer,
    BartConfig,
    BartForConditionalGeneration,
    BertConfig,
    DPRConfig,
    DPRQuestionEncoder,
    PreTrainedModel,
)

from openbook.errors import SourceInvalid

# BART counts positions from 2: the two rows before are never read.
POSITION_OFFSET = 2
# model_type -> the first position that it counts
ENCODERS = {"bert": 0, "roberta": 2}


def warm_start_generator(base: Path, *, decoder_layers: Sequence[int] = ()) -> BartForConditionalGeneration:
    """A BART whose encoder is the BERT in folder `base` and whose decoder layers begin as the BERT's `decoder_layers`.

    By default every other layer: 1, 3, 5 of six. Cross-attention begins as a copy of self-attention.
    Raises SourceInvalid when `base` lacks a named layer, or weights that a BERT has.
    """
    bert = _load_bert(base)
    config: BertConfig = bert.config
    decoder_layers = tuple(decoder_layers) or tuple(range(1, config.num_hidden_layers, 2)) or (0,)
    if not all(0 <= layer < config.num_hidden_layers for layer in decoder_layers):
        raise SourceInvalid(source=base, reason=f"decoder layers {decoder_layers} of {config.num_hidden_layers} layers")
    tokenizer = AutoTokenizer.from_pretrained(base, trust_remote_code=False)
    generator = BartForConditionalGeneration(
        BartConfig(
            vocab_size=config.vocab_size,
            d_model=config.hidden_size,
            encoder_layers=config.num_hidden_layers,
            decoder_layers=len(decoder_layers),
            encoder_attention_heads=config.num_attention_heads,
            decoder_attention_heads=config.num_attention_heads,
            encoder_ffn_dim=config.intermediate_size,
            decoder_ffn_dim=config.intermediate_size,
            activation_function=config.hidden_act,
            max_position_embeddings=len(_positions(bert)),
            scale_embedding=False,
            dropout=config.hidden_dropout_prob,
            attention_dropout=0.0,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=tokenizer.cls_token_id,
            eos_token_id=tokenizer.sep_token_id,
            decoder_start_token_id=tokenizer.cls_token_id,
            forced_bos_token_id=None,
            forced_eos_token_id=None,
        )
    )
    source = bert.state_dict()
    weights = _embeddings(source, _positions(bert))
    for index in range(config.num_hidden_layers):
        weights |= _layer(source, index, f"model.encoder.layers.{index}")
    for index, layer in enumerate(decoder_layers):
        weights |= _layer(source, layer, f"model.decoder.layers.{index}")
        cross = _layer(source, layer, f"model.decoder.layers.{index}")
        weights |= {name.replace(".self_", ".encoder_"): cross[name] for name in cross if ".self_attn" in name}
    missing, unexpected = generator.load_state_dict(weights, strict=False)
    tied = {"lm_head.weight", "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"}
    if unexpected or set(missing) - tied - {"final_logits_bias"}:
        raise SourceInvalid(source=base, reason=f"weights do not fit: {sorted(missing)}, {sorted(unexpected)}")
    generator.tie_weights()
    return generator


def warm_start_question_encoder(base: Path, *, dimension: int | None = None) -> DPRQuestionEncoder:
    """A DPRQuestionEncoder with the weights of the BERT in folder `base`: the first token's state.

    If the BERT's size is not `dimension`, an untrained projection to it follows.
    """
    bert = _load_bert(base)
    positions = _positions(bert)  # (P, d)
    config = bert.config.to_dict() | {
        "projection_dim": 0 if dimension in (None, bert.config.hidden_size) else dimension,
        "max_position_embeddings": len(positions),
        "model_type": "dpr",
        "architectures": None,
    }
    encoder = DPRQuestionEncoder(DPRConfig(**config))
    weights = {**bert.state_dict(), "embeddings.position_embeddings.weight": positions}
    encoder.question_encoder.bert_model.load_state_dict(weights)
    return encoder


def _load_bert(base: Path) -> PreTrainedModel:
    return AutoModel.from_pretrained(base, add_pooling_layer=False, dtype=torch.float32, trust_remote_code=False)


def _positions(bert: PreTrainedModel) -> Tensor:
    """The position vectors that the encoder uses: (P, d)."""
    positions: Tensor = bert.embeddings.position_embeddings.weight.detach()[ENCODERS[bert.config.model_type] :]
    return positions


def _embeddings(source: Mapping[str, Tensor], positions: Tensor) -> dict[str, Tensor]:
    # The generator has no token types: everything it reads is of type 0, which moves into the positions.
    folded = positions + source["embeddings.token_type_embeddings.weight"][0]  # (P, d)
    unused = torch.zeros(POSITION_OFFSET, positions.shape[1])  # (2, d)
    weights = {"model.shared.weight": source["embeddings.word_embeddings.weight"]}
    for side in ("encoder", "decoder"):
        weights[f"model.{side}.embed_positions.weight"] = torch.cat([unused, folded])  # (P + 2, d)
        for part in ("weight", "bias"):
            weights[f"model.{side}.layernorm_embedding.{part}"] = source[f"embeddings.LayerNorm.{part}"].clone()
    return weights


def _layer(source: Mapping[str, Tensor], index: int, target: str) -> dict[str, Tensor]:
    names = {
        "attention.self.query": "self_attn.q_proj",
        "attention.self.key": "self_attn.k_proj",
        "attention.self.value": "self_attn.v_proj",
        "attention.output.dense": "self_attn.out_proj",
        "attention.output.LayerNorm": "self_attn_layer_norm",
        "intermediate.dense": "fc1",
        "output.dense": "fc2",
        "output.LayerNorm": "final_layer_norm",
    }
    return {
        f"{target}.{new}.{part}": source[f"encoder.layer.{index}.{old}.{part}"].clone()
        for old, new in names.items()
        for part in ("weight", "bias")
    }
