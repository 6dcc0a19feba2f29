"""A generator's forward pass in training, whatever its kind: BART or T5."""

from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openbook_lab.training.batches import IGNORED, ReadingBatch


@dataclass(frozen=True, slots=True)
class TokenLosses:
    """-log p of the N target tokens of a batch, in float32, row by row; the last cross-attention where asked for."""

    losses: Tensor  # (N,)
    wanted: Tensor  # (B, T), True where a target stands
    attention: Tensor | None  # (B, H, T, S)


def encode(generator: PreTrainedModel, batch: ReadingBatch) -> Tensor:
    """The encoder's states: (B, S, d)."""
    states: Tensor = generator.get_encoder()(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask
    ).last_hidden_state
    return states


def logits_of(generator: PreTrainedModel, hidden: Tensor) -> Tensor:
    """What the decoder's states say of the next token: (..., d) -> (..., V)."""
    if getattr(generator.config, "scale_decoder_outputs", False):
        hidden = hidden * generator.config.d_model**-0.5
    logits: Tensor = generator.lm_head(hidden)
    bias: Tensor | None = getattr(generator, "final_logits_bias", None)  # BART's, (1, V)
    return logits if bias is None else logits + bias[0]


def token_losses(generator: PreTrainedModel, batch: ReadingBatch, *, attention: bool = False) -> TokenLosses:
    """Teacher forcing. Only the states that a target stands at go through the vocabulary."""
    decoded = generator.get_decoder()(
        input_ids=batch.decoder_input_ids,
        encoder_hidden_states=encode(generator, batch),
        encoder_attention_mask=batch.attention_mask,
        use_cache=False,
        output_attentions=attention,
    )
    wanted = batch.targets != IGNORED  # (B, T)
    logits = logits_of(generator, decoded.last_hidden_state[wanted])  # (N, V)
    losses = torch.nn.functional.cross_entropy(logits.float(), batch.targets[wanted], reduction="none")  # (N,)
    return TokenLosses(losses, wanted, decoded.cross_attentions[-1] if attention else None)


def passage_token_log_probs(generator: PreTrainedModel, batch: ReadingBatch) -> Tensor:
    """log p(y_i | x, z, y_<i) of every target token, 0 where there is none: (R, T)."""
    found = token_losses(generator, batch)
    return torch.zeros(found.wanted.shape, device=found.losses.device).masked_scatter(found.wanted, -found.losses)
