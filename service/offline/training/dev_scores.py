"""How well a generator reads: greedy answers from one passage each, against the answers."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import BartForConditionalGeneration

from service.offline.qa_metrics import exact_match, f1
from service.offline.training.batches import collate, encode_examples
from service.offline.training.examples import Question, ReadingExample


@torch.inference_mode()
def greedy_answers(
    generator: BartForConditionalGeneration,
    tokenizer: Any,
    inputs: Sequence[tuple[str, str, str]],
    *,
    batch_size: int = 32,
    max_length: int = 16,
    max_input_length: int = 300,
) -> list[str]:
    """Answers to (title, text, question) triples, one passage each, most likely token by token."""
    examples = [ReadingExample(question, title, text, "", None) for title, text, question in inputs]
    encoded = encode_examples(examples, tokenizer, max_input_length=max_input_length, max_target_length=2)
    order = sorted(range(len(encoded)), key=lambda i: len(encoded[i].input_ids))
    answers = [""] * len(encoded)
    start, end = generator.config.decoder_start_token_id, tokenizer.sep_token_id
    for first in range(0, len(order), batch_size):
        rows = order[first : first + batch_size]
        batch = collate([encoded[i] for i in rows], pad=tokenizer.pad_token_id, start=start)
        states = generator.model.encoder(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask
        ).last_hidden_state  # (B, S, d)
        tokens = torch.full((len(rows), 1), start)  # (B, 1)
        ended = torch.zeros(len(rows), dtype=torch.bool)  # (B,)
        for _ in range(max_length):
            hidden = generator.model.decoder(
                input_ids=tokens,
                encoder_hidden_states=states,
                encoder_attention_mask=batch.attention_mask,
                use_cache=False,
            ).last_hidden_state[:, -1]  # (B, d)
            logits = torch.nn.functional.linear(hidden, generator.lm_head.weight) + generator.final_logits_bias
            if tokens.shape[1] == 1:
                logits[:, end] = -torch.inf  # an answer is asked for, not whether there is one
            chosen = logits.argmax(dim=-1)  # (B,)
            tokens = torch.cat([tokens, chosen[:, None]], dim=1)  # (B, t)
            ended |= chosen == end
            if bool(ended.all()):
                break
        for row, ids in zip(rows, tokens[:, 1:].tolist(), strict=True):
            kept = ids[: ids.index(end)] if end in ids else ids
            answers[row] = tokenizer.decode(kept, skip_special_tokens=True)
    return answers


def reading_scores(
    generator: BartForConditionalGeneration, tokenizer: Any, questions: Sequence[Question]
) -> tuple[float, float]:
    """Exact match and F1, in percent, with the paragraph of each question given whole."""
    generator.eval()
    predictions = greedy_answers(generator, tokenizer, [(q.title, q.context, q.text) for q in questions])
    count = max(1, len(questions))
    matched = sum(exact_match(p, q.answers) for p, q in zip(predictions, questions, strict=True))
    overlap = sum(f1(p, q.answers) for p, q in zip(predictions, questions, strict=True))
    return 100 * matched / count, 100 * overlap / count
