"""Stage 1, reading: (passage, question) -> answer, before any retrieval is learnt."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import BartForConditionalGeneration

from service.offline.qa_metrics import exact_match, f1
from service.offline.training.dropout import MaskedDropout
from service.offline.training.examples import Question, ReadingExample
from service.offline.training.loop import (
    MasterAdamW,
    ParameterGroup,
    batches_by_length,
    cross_entropy_of_targets,
    learning_rate,
    load_state,
    padded,
    save_state,
)

TITLE_SEPARATOR = " / "
QUESTION_SEPARATOR = " // "
IGNORED = -100


@dataclass(frozen=True, slots=True)
class ReadingConfig:
    """How stage 1 is trained; every number that the result depends on, but for the questions themselves."""

    steps: int = 2500
    tokens_per_step: int = 5120
    warm_up: int = 100
    encoder_rate: float = 2e-4
    decoder_rate: float = 6e-4
    weight_decay: float = 0.01
    dropout: float = 0.1
    guidance: float = 0.3
    guided_heads: int = 6
    max_input_length: int = 300
    max_target_length: int = 24
    examples_per_pool: int = 1500
    evaluate_every: int = 400
    save_every: int = 150
    seed: int = 0


@dataclass(frozen=True, slots=True)
class ReadingBatch:
    """Tensors of one step. `targets` are the answer and its end, IGNORED on padding; `evidence` says which input
    tokens a target token may be copied from."""

    input_ids: Tensor  # (B, S)
    attention_mask: Tensor  # (B, S)
    decoder_input_ids: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    evidence: Tensor  # (B, T, S) bool


@dataclass(frozen=True, slots=True)
class EncodedExample:
    input_ids: list[int]
    target_ids: list[int]
    # where the answer's first token stands among the inputs; None without one
    evidence: int | None


def input_text(title: str, text: str, question: str) -> str:
    """What the generator reads, in the words of the paper's own code: title / text // question."""
    return f"{title}{TITLE_SEPARATOR}{text}{QUESTION_SEPARATOR}{question}"


def encode_examples(
    examples: Sequence[ReadingExample], tokenizer: Any, *, max_input_length: int, max_target_length: int
) -> list[EncodedExample]:
    """Token ids of inputs and targets. A passage too long is cut, the question never is."""
    if not examples:
        return []
    plain = {"add_special_tokens": False}
    heads = tokenizer([f"{e.title}{TITLE_SEPARATOR}" for e in examples], **plain)["input_ids"]
    texts = tokenizer([e.text for e in examples], return_offsets_mapping=True, **plain)
    tails = tokenizer([f"{QUESTION_SEPARATOR}{e.question}" for e in examples], **plain)["input_ids"]
    answers = tokenizer([e.answer for e in examples], **plain)["input_ids"]
    encoded = []
    for example, head, ids, offsets, tail, answer in zip(
        examples, heads, texts["input_ids"], texts["offset_mapping"], tails, answers, strict=True
    ):
        room = max(0, max_input_length - len(head) - len(tail) - 2)
        evidence = None
        if example.start is not None:
            first = next((i for i, (left, right) in enumerate(offsets) if left <= example.start < right), None)
            if first is not None and ids[first : first + len(answer)] == answer and first + len(answer) <= room:
                evidence = 1 + len(head) + first
        encoded.append(
            EncodedExample(
                input_ids=[tokenizer.cls_token_id, *head, *ids[:room], *tail, tokenizer.sep_token_id],
                target_ids=[*answer[: max_target_length - 1], tokenizer.sep_token_id],
                evidence=evidence,
            )
        )
    return encoded


def collate(examples: Sequence[EncodedExample], *, pad: int, start: int) -> ReadingBatch:
    """Pad the examples of one batch; the decoder reads `start` and then its targets shifted by one."""
    rows, width = len(examples), padded(max(len(e.input_ids) for e in examples))
    length = max(len(e.target_ids) for e in examples)
    input_ids = torch.full((rows, width), pad)  # (B, S)
    attention_mask = torch.zeros((rows, width), dtype=torch.long)  # (B, S)
    decoder_input_ids = torch.full((rows, length), pad)  # (B, T)
    targets = torch.full((rows, length), IGNORED)  # (B, T)
    evidence = torch.zeros((rows, length, width), dtype=torch.bool)  # (B, T, S)
    for row, example in enumerate(examples):
        size, target = len(example.input_ids), example.target_ids
        input_ids[row, :size] = torch.tensor(example.input_ids)
        attention_mask[row, :size] = 1
        decoder_input_ids[row, : len(target)] = torch.tensor([start, *target[:-1]])
        targets[row, : len(target)] = torch.tensor(target)
        if example.evidence is not None:
            for position in range(len(target) - 1):
                evidence[row, position, example.evidence + position] = True
    return ReadingBatch(input_ids, attention_mask, decoder_input_ids, targets, evidence)


def reading_loss(
    generator: BartForConditionalGeneration, batch: ReadingBatch, *, guidance: float, guided_heads: int
) -> tuple[Tensor, Tensor]:
    """Mean -log p of a target token, plus `guidance` times the guided attention loss; and the first alone, detached.

    Guided attention: the first `guided_heads` heads of the last cross-attention should look at the answer's own
    tokens, -log of the attention that falls there.
    """
    states = generator.model.encoder(
        input_ids=batch.input_ids, attention_mask=batch.attention_mask
    ).last_hidden_state  # (B, S, d)
    decoded = generator.model.decoder(
        input_ids=batch.decoder_input_ids,
        encoder_hidden_states=states,
        encoder_attention_mask=batch.attention_mask,
        use_cache=False,
        output_attentions=guidance > 0,
    )
    wanted = batch.targets != IGNORED  # (B, T)
    hidden = decoded.last_hidden_state[wanted]  # (N, d)
    logits = torch.nn.functional.linear(hidden, generator.lm_head.weight) + generator.final_logits_bias  # (N, V)
    nll = cross_entropy_of_targets(logits, batch.targets[wanted]).mean()  # ()
    loss = nll
    guided = batch.evidence.any(dim=-1)  # (B, T)
    if guidance > 0 and bool(guided.any()):
        attention = decoded.cross_attentions[-1][:, :guided_heads].float()  # (B, H, T, S)
        seen = (attention * batch.evidence[:, None]).sum(dim=-1)  # (B, H, T)
        misses = -torch.log(seen + 1e-6).mean(dim=1)[guided]  # (M,)
        loss = loss + guidance * misses.mean()
    return loss, nll.detach()


def trainable_groups(generator: BartForConditionalGeneration, config: ReadingConfig) -> list[ParameterGroup]:
    """All but the word embeddings: the encoder at its rate; the decoder and the logits' bias at the other."""
    generator.requires_grad_(True)
    generator.model.shared.requires_grad_(False)
    generator.lm_head.requires_grad_(False)
    train_logits_bias(generator)
    encoder = tuple(p for p in generator.model.encoder.parameters() if p.requires_grad)
    decoder = tuple(p for p in generator.model.decoder.parameters() if p.requires_grad)
    return [
        ParameterGroup(encoder, config.encoder_rate),
        ParameterGroup((*decoder, generator.get_parameter("final_logits_bias")), config.decoder_rate),
    ]


def train_logits_bias(generator: BartForConditionalGeneration) -> None:
    """Turn BART's `final_logits_bias`, a buffer, into a parameter: it makes up for frozen word embeddings."""
    if not isinstance(generator.final_logits_bias, torch.nn.Parameter):
        bias = generator.final_logits_bias
        del generator.final_logits_bias
        generator.final_logits_bias = torch.nn.Parameter(bias)


MakeExamples = Callable[[int, int], Sequence[ReadingExample]]


def reading_batches(
    make_examples: MakeExamples, tokenizer: Any, config: ReadingConfig, *, start: int, first_pool: int = 0
) -> Iterator[tuple[int, list[ReadingBatch]]]:
    """Endless pools of batches: (pool number, its batches). A pool depends on its number and the seed alone."""
    pool = first_pool
    while True:
        examples = make_examples(pool, config.examples_per_pool)
        encoded = encode_examples(
            examples, tokenizer, max_input_length=config.max_input_length, max_target_length=config.max_target_length
        )
        batches = batches_by_length(
            encoded,
            [len(example.input_ids) for example in encoded],
            tokens=config.tokens_per_step,
            random_state=random.Random(f"{config.seed} batches {pool}"),
        )
        yield pool, [collate(batch, pad=tokenizer.pad_token_id, start=start) for batch in batches]
        pool += 1


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


def train_reading(
    generator: BartForConditionalGeneration,
    tokenizer: Any,
    make_examples: MakeExamples,
    config: ReadingConfig,
    *,
    state_file: Path,
    log: Callable[[dict[str, Any]], None],
    dev: Sequence[Question] = (),
) -> None:
    """Train `generator` in place, in bf16 with float32 masters; it is left in float32 and in evaluation mode.

    Begins again from `state_file` where there is one, at the step that it holds, in the pool that it was in.
    """
    generator.set_attn_implementation("eager")
    generator.to(torch.bfloat16)
    optimizer = MasterAdamW(trainable_groups(generator, config), weight_decay=config.weight_decay)
    for module in generator.modules():
        if isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0
    state = load_state(state_file) or {"step": 0, "pool": 0, "batch": 0}
    if "optimizer" in state:
        optimizer.load_state_dict(state["optimizer"])
    step, skip = int(state["step"]), int(state["batch"])
    handles = MaskedDropout(config.dropout, seed=config.seed + step, dtype=torch.bfloat16).attach(generator)
    generator.train()
    began, first = time.monotonic(), step
    recent: list[float] = []
    start = generator.config.decoder_start_token_id
    for pool, batches in reading_batches(make_examples, tokenizer, config, start=start, first_pool=int(state["pool"])):
        for number, batch in enumerate(batches):
            if number < skip:
                continue
            guidance = config.guidance * max(0.0, 1 - step / (0.7 * config.steps))
            loss, nll = reading_loss(generator, batch, guidance=guidance, guided_heads=config.guided_heads)
            loss.backward()
            rate = learning_rate(step, steps=config.steps, warm_up=config.warm_up)
            norm = optimizer.step(rate)
            recent.append(float(nll))
            step += 1
            if step % 20 == 0:
                seconds = (time.monotonic() - began) / (step - first)
                log({"step": step, "nll": sum(recent) / len(recent), "norm": norm, "rate": rate, "s/step": seconds})
                recent.clear()
            if step % config.save_every == 0 or step == config.steps:
                place = {"step": step, "pool": pool, "batch": number + 1}
                save_state(state_file, {**place, "optimizer": optimizer.state_dict()})
            if dev and (step % config.evaluate_every == 0 or step == config.steps):
                matched, overlap = reading_scores(generator, tokenizer, dev)
                log({"step": step, "dev_exact_match": matched, "dev_f1": overlap, "questions": len(dev)})
                generator.train()
            if step >= config.steps:
                for handle in handles:
                    handle.remove()
                optimizer.copy_masters_to(generator)
                generator.eval()
                return
        skip = 0
