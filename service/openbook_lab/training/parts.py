"""Which weights of the two models a stage trains, and at what rate."""

import torch
from transformers import DPRQuestionEncoder, PreTrainedModel

from openbook_lab.training.loop import ParameterGroup
from openbook_lab.training.stage import WORD_EMBEDDINGS, StageConfig


def generator_groups(generator: PreTrainedModel, config: StageConfig) -> list[ParameterGroup]:
    """The generator but for its frozen parts: the encoder at its rate; decoder, logits' bias and, where they are
    trained, the word embeddings at the other."""
    generator.requires_grad_(True)
    train_logits_bias(generator)
    embeddings = generator.get_input_embeddings().weight
    embeddings.requires_grad_(WORD_EMBEDDINGS not in config.freeze)
    encoder = [p for p in generator.get_encoder().parameters() if p is not embeddings]
    known = {id(parameter) for parameter in encoder}
    decoder = [p for p in generator.parameters() if id(p) not in known]
    for part, parameters in (("generator-encoder", encoder), ("generator-decoder", decoder)):
        if part in config.freeze:
            for parameter in parameters:
                parameter.requires_grad_(False)
    groups = [
        ParameterGroup(tuple(p for p in encoder if p.requires_grad), config.encoder_rate),
        ParameterGroup(tuple(p for p in decoder if p.requires_grad), config.decoder_rate),
    ]
    return [group for group in groups if group.parameters]


def question_groups(encoder: DPRQuestionEncoder, rate: float, *, embeddings: bool = False) -> list[ParameterGroup]:
    """All of the question encoder, with or without its word embeddings."""
    encoder.requires_grad_(True)
    encoder.question_encoder.bert_model.embeddings.word_embeddings.requires_grad_(embeddings)
    return [ParameterGroup(tuple(p for p in encoder.parameters() if p.requires_grad), rate)]


def train_logits_bias(generator: PreTrainedModel) -> None:
    """Turn BART's `final_logits_bias`, a buffer, into a parameter: it makes up for frozen word embeddings."""
    bias = getattr(generator, "final_logits_bias", None)
    if bias is not None and not isinstance(bias, torch.nn.Parameter):
        del generator.final_logits_bias
        generator.final_logits_bias = torch.nn.Parameter(bias)
