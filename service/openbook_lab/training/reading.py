"""Reading, the first stage: (passage, question) -> answer, before any retrieval is learnt."""

import random
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openbook.errors import SourceInvalid
from openbook.rag.wording import Wording
from openbook_lab.datasets.questions import Question
from openbook_lab.training.batches import EncodedExample, ReadingBatch, collate, encode_examples, padded
from openbook_lab.training.examples import ReadingExample
from openbook_lab.training.forward import token_losses
from openbook_lab.training.optimizer import ParameterGroup, generator_groups
from openbook_lab.training.recipe import ReadingConfig
from openbook_lab.training.stage import Item, Task, parts_of, random_of


def reading_loss(
    generator: PreTrainedModel,
    batch: ReadingBatch,
    *,
    guidance: float,
    guided_heads: int,
    tokens: int | None = None,
    guided_tokens: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean -log p of a target token, plus `guidance` times the guided attention loss; and the first alone, detached.

    Guided attention: the first `guided_heads` heads of the last cross-attention should look at the answer's own
    tokens, -log of the attention on them. `tokens` and `guided_tokens` are the counts of a whole batch of which
    `batch` is a part: the losses of the parts then add up to the loss of the whole.
    """
    found = token_losses(generator, batch, attention=guidance > 0)
    nll = found.losses.sum() / (tokens or found.losses.numel())  # ()
    loss = nll
    guided = batch.evidence.any(dim=-1)  # (B, T)
    if found.attention is not None and bool(guided.any()):
        attention = found.attention[:, :guided_heads].float()  # (B, H, T, S)
        seen = (attention * batch.evidence[:, None]).sum(dim=-1)  # (B, H, T)
        misses = -torch.log(seen + 1e-6).mean(dim=1)[guided]  # (M,)
        loss = loss + guidance * misses.sum() / (guided_tokens or misses.numel())
    return loss, nll.detach()


@dataclass
class PooledTask(Task, Generic[Item]):
    """Steps through pools of examples. A pool, and its batches, depend on its number and the seed.

    Each of several processes takes every n-th batch of a pool, and they share `tokens_per_step`.
    """

    name = "reading"
    judged_by = "dev_exact_match"
    config: ReadingConfig
    generator: PreTrainedModel

    def __post_init__(self) -> None:
        self._batches = self._walk()

    @property
    def models(self) -> Sequence[PreTrainedModel]:
        return (self.generator,)

    @abstractmethod
    def pool(self, number: int) -> list[list[Item]]:
        """The batches of a pool."""

    def evaluate(self) -> Mapping[str, float]:
        if not self.dev:
            return {}
        matched, overlap = self.judged()
        return {"dev_exact_match": matched, "dev_f1": overlap, "questions": len(self.dev)}

    @abstractmethod
    def judged(self) -> tuple[float, float]:
        """Exact match and F1, in percent, of answers to the held-out questions with their paragraphs."""

    def _walk(self) -> Iterator[list[Item]]:
        """This process's batches from `place` on; `place` then names the next one."""
        machine = self.machine
        while True:
            pool = self.place.get("pool", 0)
            batches = self.pool(pool)
            together = len(batches) // machine.count * machine.count
            if not together:
                raise SourceInvalid(
                    source="examples_per_pool",
                    reason=f"{self.config.examples_per_pool} examples make {len(batches)} batches, "
                    f"{machine.count} processes need one each",
                )
            mine = batches[machine.rank : together : machine.count]
            for number in range(self.place.get("batch", 0), len(mine)):
                self.place = {"pool": pool, "batch": number + 1}
                yield mine[number]
            self.place = {"pool": pool + 1, "batch": 0}


@dataclass
class ReadingTask(PooledTask[EncodedExample]):
    """Reading by a generator. `make_examples` makes the examples of a pool from its number and its size, `judge` the
    scores of questions with their paragraph."""

    wording: Wording
    make_examples: Callable[[int, int], Sequence[ReadingExample]]
    judge: Callable[[Sequence[Question]], tuple[float, float]] | None = None

    def groups(self) -> list[ParameterGroup]:
        return generator_groups(self.generator, self.config)

    def learn(self, step: int, gather: Callable[[], None]) -> Mapping[str, float]:
        config = self.config
        guidance = config.guidance * max(0.0, 1 - step / (0.7 * config.steps))
        examples = parts_of(next(self._batches), config.accumulate)
        parts = [collate(part, self.wording).to(self.machine.device) for part in examples]
        tokens = sum(int((part.targets >= 0).sum()) for part in parts)
        guided_tokens = sum(int(part.evidence.any(dim=-1).sum()) for part in parts)
        total = 0.0
        for part in parts:
            loss, nll = reading_loss(
                self.generator,
                part,
                guidance=guidance,
                guided_heads=config.guided_heads,
                tokens=tokens,
                guided_tokens=guided_tokens,
            )
            torch.autograd.backward(loss)
            gather()
            total += float(nll)
        return {"nll": total}

    def judged(self) -> tuple[float, float]:
        assert self.judge is not None, "given with held-out questions"
        return self.judge(self.dev)

    def pool(self, number: int) -> list[list[EncodedExample]]:
        config = self.config
        examples = self.make_examples(number, config.examples_per_pool)
        encoded = encode_examples(examples, self.wording, config.max_input_length, config.max_target_length)
        tokens = config.tokens_per_step // self.machine.count
        # an answer is shorter than its input, except in a closed book
        sizes = [(max(len(example.input_ids), len(example.target_ids)), 1) for example in encoded]
        return batches_by_length(encoded, sizes, tokens=tokens, random_state=random_of(config.seed, "batches", number))


def batches_by_length(
    examples: Sequence[Item], sizes: Sequence[tuple[int, int]], *, tokens: int, random_state: random.Random
) -> list[list[Item]]:
    """Batches of examples of like length, at most `tokens` padded tokens in each, in random order.

    An example's size is the length of its longest row, in tokens, and its rows.
    """
    batches: list[list[Item]] = []
    room = 0
    for index in sorted(range(len(examples)), key=lambda index: sizes[index][0], reverse=True):
        length, rows = sizes[index]
        if room < rows:
            batches.append([])
            room = max(rows, tokens // padded(length))
        batches[-1].append(examples[index])
        room -= rows
    random_state.shuffle(batches)
    return batches
