"""Examples as tensors: what the generator reads and writes, padded, with the place of the answer among the inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from openbook.rag.wording import Wording
from openbook_lab.training.examples import ReadingExample

IGNORED = -100
LENGTH_MULTIPLE = 16


class ReadingBatch(NamedTuple):
    """Tensors of one step.

    `targets` are the answer and its end, IGNORED on padding and on forced tokens. `evidence` marks the input tokens
    from which a target token may be copied.
    """

    input_ids: Tensor  # (B, S)
    attention_mask: Tensor  # (B, S)
    decoder_input_ids: Tensor  # (B, T)
    targets: Tensor  # (B, T)
    evidence: Tensor  # (B, T, S) bool

    def to(self, device: torch.device) -> "ReadingBatch":
        """The same on another device."""
        return ReadingBatch(*(tensor.to(device) for tensor in self))


@dataclass(frozen=True, slots=True)
class EncodedExample:
    """`evidence` is the position of the answer's first token among the inputs; `opening` counts the targets before the
    answer's own tokens."""

    input_ids: list[int]
    target_ids: list[int]
    evidence: int | None
    opening: int = 0


def encode_examples(
    examples: Sequence[ReadingExample], wording: Wording, longest_input: int, longest_target: int
) -> list[EncodedExample]:
    """Token ids of inputs and targets, cut to these lengths. An input that is too long loses the passage's end."""
    if not examples:
        return []
    limit = min(longest_input, wording.longest_input or longest_input)
    tokenizer = wording.tokenizer
    texts = [wording.input_text(example.title, example.text, example.question) for example in examples]
    read = tokenizer(texts, return_offsets_mapping=True, verbose=False)
    targets = wording.targets([example.answer for example in examples], longest_target)
    # byte pairs write a word with the space before it: in a passage an answer has one, alone it has none
    bare = tokenizer([e.answer for e in examples], add_special_tokens=False, verbose=False)["input_ids"]
    spaced = tokenizer([f" {e.answer}" for e in examples], add_special_tokens=False, verbose=False)["input_ids"]
    encoded = []
    for row, (example, text) in enumerate(zip(examples, texts, strict=True)):
        ids, offsets = read["input_ids"][row], read["offset_mapping"][row]
        end, kept = wording.cut(text, example.question, offsets, limit)
        end = max(1, end)
        ids = [*ids[:end], *ids[kept:]]
        evidence = None
        if example.start is not None:
            start = len(wording.opening(example.title, example.text[: example.start]))
            first = next((i for i, (left, right) in enumerate(offsets) if left <= start < right), None)
            size = len(bare[row])
            if first is not None and first + size <= end and ids[first : first + size] in (bare[row], spaced[row]):
                evidence = first
        opening = max(0, len(targets[row]) - 1 - len(bare[row]))
        encoded.append(EncodedExample(ids, targets[row], evidence, opening))
    return encoded


def padded(length: int) -> int:
    """The next multiple of 16: shapes that recur are fast."""
    return -(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE


def collate(examples: Sequence[EncodedExample], wording: Wording) -> ReadingBatch:
    """Pad the examples of one batch; the decoder reads the prefix and then its targets, shifted by one."""
    forced = len(wording.prefix) - 1
    rows, width = len(examples), padded(max(len(e.input_ids) for e in examples))
    width = min(width, wording.longest_input or width)
    length = forced + max(len(e.target_ids) for e in examples)
    input_ids = torch.full((rows, width), wording.pad)  # (B, S)
    attention_mask = torch.zeros((rows, width), dtype=torch.long)  # (B, S)
    decoder_input_ids = torch.full((rows, length), wording.pad)  # (B, T)
    targets = torch.full((rows, length), IGNORED)  # (B, T)
    evidence = torch.zeros((rows, length, width), dtype=torch.bool)  # (B, T, S)
    for row, example in enumerate(examples):
        size, target = len(example.input_ids), example.target_ids
        input_ids[row, :size] = torch.tensor(example.input_ids)
        attention_mask[row, :size] = 1
        decoder_input_ids[row, : forced + len(target)] = torch.tensor([*wording.prefix, *target[:-1]])
        targets[row, forced : forced + len(target)] = torch.tensor(target)
        if example.evidence is not None:
            for position in range(len(target) - 1 - example.opening):
                evidence[row, forced + example.opening + position, example.evidence + position] = True
    return ReadingBatch(input_ids, attention_mask, decoder_input_ids, targets, evidence)
