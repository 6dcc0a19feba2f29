"""A generator's losses of a batch's targets, and the scores of its greedy answers."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openbook.entities import AnswerOptions, Passage
from openbook.rag import marginal
from openbook.rag.generator import Generator
from openbook.rag.wording import Wording
from openbook_lab.datasets.qa_metrics import exact_match, f1
from openbook_lab.datasets.questions import Question
from openbook_lab.training.batches import IGNORED, ReadingBatch
from openbook_lab.training.examples import NO_ANSWER

# (question, passage) pairs that are answered together
ROWS = 40

GREEDY = AnswerOptions(num_beams=1, max_new_tokens=20)


class TokenLosses(NamedTuple):
    """-log p of the N target tokens of a batch, in float32, row by row; the last cross-attention on demand."""

    logits: Tensor  # (N, V)
    losses: Tensor  # (N,)
    wanted: Tensor  # (B, T), True at every target
    attention: Tensor | None  # (B, H, T, S)


def token_losses(generator: PreTrainedModel, batch: ReadingBatch, *, attention: bool = False) -> TokenLosses:
    """Teacher forcing. Only the states of target tokens go through the vocabulary."""
    decoded = generator.get_decoder()(
        input_ids=batch.decoder_input_ids,
        encoder_hidden_states=_encode(generator, batch),
        encoder_attention_mask=batch.attention_mask,
        use_cache=False,
        output_attentions=attention,
    )
    wanted = batch.targets != IGNORED  # (B, T)
    logits = _logits(generator, decoded.last_hidden_state[wanted])  # (N, V)
    losses = torch.nn.functional.cross_entropy(logits.float(), batch.targets[wanted], reduction="none")  # (N,)
    return TokenLosses(logits, losses, wanted, decoded.cross_attentions[-1] if attention else None)


class PassageLogProbs(NamedTuple):
    """log p(y_i | x, z, y_<i) of every target token, 0 elsewhere; and log p(empty answer | x, z)."""

    tokens: Tensor  # (R, T)
    empty: Tensor  # (R,)


def passage_log_probs(generator: PreTrainedModel, batch: ReadingBatch, wording: Wording) -> PassageLogProbs:
    """Of R passages with their targets. The empty answer needs no pass of its own: it is the end at the place of the
    answer's first token."""
    found = token_losses(generator, batch)
    tokens = torch.zeros(found.wanted.shape, device=found.losses.device).masked_scatter(found.wanted, -found.losses)
    (nothing,) = wording.targets([NO_ANSWER], longest=batch.targets.shape[1])
    first = torch.zeros_like(found.wanted)  # (R, T)
    first[:, len(wording.prefix) - 1 + len(nothing) - 1] = True
    logits = found.logits[first[found.wanted]].float()  # (R, V)
    return PassageLogProbs(tokens, logits.log_softmax(dim=-1)[:, wording.eos])


@torch.inference_mode()
def open_scores(
    generator: Generator,
    questions: Sequence[Question],
    passages: Sequence[Sequence[Passage]],
    doc_scores: Tensor,
) -> tuple[float, float]:
    """Exact match and F1, in percent, of RAG-Token's greedy answers from these passages, by the decoder that serves.

    `doc_scores` (Q, K).
    """
    predictions = []
    batch_size = max(1, ROWS // doc_scores.shape[1])
    for first in range(0, len(questions), batch_size):
        rows = slice(first, first + batch_size)
        encoded = generator.encode([question.text for question in questions[rows]], passages[rows])
        prior = marginal.doc_log_prior(doc_scores[rows].float())  # (Q, K)
        answers = generator.decode(generator.start(encoded), prior, GREEDY)
        predictions += [generator.text(best[0].token_ids) for best in answers]
    return answer_scores(predictions, questions)


def answer_scores(predictions: Sequence[str], questions: Sequence[Question]) -> tuple[float, float]:
    """Exact match and F1 of these answers, in percent."""
    count = max(1, len(questions))
    pairs = list(zip(predictions, [question.answers for question in questions], strict=True))
    return 100 * sum(exact_match(*pair) for pair in pairs) / count, 100 * sum(f1(*pair) for pair in pairs) / count


def _encode(generator: PreTrainedModel, batch: ReadingBatch) -> Tensor:
    """The encoder's states: (B, S, d)."""
    encoder = generator.get_encoder()
    states: Tensor = encoder(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
    return states


def _logits(generator: PreTrainedModel, hidden: Tensor) -> Tensor:
    """Logits of the next token after the decoder's states: (..., d) -> (..., V)."""
    if getattr(generator.config, "scale_decoder_outputs", False):
        hidden = hidden * generator.config.d_model**-0.5
    logits: Tensor = generator.lm_head(hidden)
    bias: Tensor | None = getattr(generator, "final_logits_bias", None)  # BART's, (1, V)
    return logits if bias is None else logits + bias[0]
