"""How well a generator reads: greedy answers on held-out questions, from the paragraph itself or from what is found."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openbook.entities import AnswerOptions, Passage
from openbook.rag import decoding, marginal
from openbook.rag.generator import Generator
from openbook.rag.wording import Wording
from openbook_lab.datasets.qa_metrics import exact_match, f1
from openbook_lab.training.batches import collate, encode_examples
from openbook_lab.training.examples import Question, ReadingExample
from openbook_lab.training.forward import encode, logits_of

MAX_NEW_TOKENS = 20
GREEDY = AnswerOptions(num_beams=1, max_new_tokens=MAX_NEW_TOKENS)


@torch.inference_mode()
def greedy_answers(
    generator: PreTrainedModel,
    wording: Wording,
    inputs: Sequence[tuple[str, str, str]],
    *,
    batch_size: int = 32,
    max_length: int = 16,
    max_input_length: int = 300,
) -> list[str]:
    """Answers to (title, text, question) triples, one passage each, most likely token by token."""
    examples = [ReadingExample(question, title, text, "", None) for title, text, question in inputs]
    encoded = encode_examples(examples, wording, max_input_length=max_input_length, max_target_length=2)
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i].input_ids))
    answers = [""] * len(encoded)
    device = generator.device
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        batch = collate([encoded[i] for i in rows], wording).to(device)
        states = encode(generator, batch)  # (B, S, d)
        tokens = torch.tensor([wording.prefix] * len(rows), device=device)  # (B, P)
        # an answer is asked for, not whether there is one: it may not end where it has but opened
        earliest = len(wording.prefix) + encoded[rows[0]].opening
        ended = torch.zeros(len(rows), dtype=torch.bool, device=device)  # (B,)
        for _ in range(max_length):
            hidden = generator.get_decoder()(
                input_ids=tokens,
                encoder_hidden_states=states,
                encoder_attention_mask=batch.attention_mask,
                use_cache=False,
            ).last_hidden_state[:, -1]  # (B, d)
            logits = logits_of(generator, hidden)  # (B, V)
            if tokens.shape[1] <= earliest:
                logits[:, wording.eos] = -torch.inf
            chosen = logits.argmax(dim=-1)  # (B,)
            tokens = torch.cat([tokens, chosen[:, None]], dim=1)  # (B, t)
            ended |= chosen == wording.eos
            if bool(ended.all()):
                break
        for row, ids in zip(rows, tokens[:, len(wording.prefix) :].tolist(), strict=True):
            kept = ids[: ids.index(wording.eos)] if wording.eos in ids else ids
            answers[row] = wording.tokenizer.decode(kept, skip_special_tokens=True)
    return answers


def reading_scores(generator: PreTrainedModel, wording: Wording, questions: Sequence[Question]) -> tuple[float, float]:
    """Exact match and F1, in percent, with the paragraph of each question given whole."""
    generator.eval()
    predictions = greedy_answers(generator, wording, [(q.title, q.context, q.text) for q in questions])
    return scores_of(predictions, questions)


@torch.inference_mode()
def open_scores(
    generator: Generator,
    questions: Sequence[Question],
    passages: Sequence[Sequence[Passage]],
    doc_scores: Tensor,
    *,
    batch_size: int = 8,
) -> tuple[float, float]:
    """Exact match and F1, in percent, of RAG-Token's greedy answers from the passages that were found.

    `doc_scores` (Q, K). The decoder is the one that serves.
    """
    predictions = []
    for first in range(0, len(questions), batch_size):
        rows = slice(first, first + batch_size)
        encoded = generator.encode([question.text for question in questions[rows]], passages[rows])
        prior = marginal.doc_log_prior(doc_scores[rows].float())  # (Q, K)
        answers = decoding.decode(generator, generator.start(encoded), prior, GREEDY)
        predictions += [generator.text(best[0].token_ids) for best in answers]
    return scores_of(predictions, questions)


def scores_of(predictions: Sequence[str], questions: Sequence[Question]) -> tuple[float, float]:
    """Exact match and F1, in percent."""
    count = max(1, len(questions))
    matched = sum(exact_match(p, q.answers) for p, q in zip(predictions, questions, strict=True))
    overlap = sum(f1(p, q.answers) for p, q in zip(predictions, questions, strict=True))
    return 100 * matched / count, 100 * overlap / count
