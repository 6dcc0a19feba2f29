"""Examples as tensors: what the generator reads and writes, padded, with the place of the answer among the inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from service.offline.training.examples import ReadingExample
from service.offline.training.loop import padded

TITLE_SEPARATOR = " / "
QUESTION_SEPARATOR = " // "
IGNORED = -100


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
