"""Stage 1, reading: (passage, question) -> answer, before any retrieval is learnt."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor
from transformers import PreTrainedModel

from openbook.errors import SourceInvalid
from openbook.rag.wording import Wording
from openbook_lab.training.batches import EncodedExample, ReadingBatch, collate, encode_examples
from openbook_lab.training.dev_scores import reading_scores
from openbook_lab.training.examples import Question, ReadingExample
from openbook_lab.training.forward import token_losses
from openbook_lab.training.loop import MasterAdamW, batches_by_length, frozen_parameters, random_of
from openbook_lab.training.parts import generator_groups
from openbook_lab.training.stage import Log, Machine, Progress, StageConfig, no_progress, train_stage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingConfig(StageConfig):
    """How stage 1 is trained; every number that the result depends on, but for the questions themselves.

    `tokens_per_step` are padded tokens of input, those of all processes together.
    """

    steps: int = 2400
    warm_up: int = 100
    encoder_rate: float = 2e-4
    decoder_rate: float = 6e-4
    evaluate_every: int = 600
    save_every: int = 150
    tokens_per_step: int = 5120
    guidance: float = 0.3
    guided_heads: int = 6
    examples_per_pool: int = 1500


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
    tokens, -log of the attention that falls there. `tokens` and `guided_tokens` are what the means are over, where
    the batch is a part of a larger one: the losses of the parts then add up to the loss of the whole.
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


Item = TypeVar("Item")
MakeExamples = Callable[[int, int], Sequence[ReadingExample]]


class ReadingTask:
    """Steps through pools of examples. A pool, and how it is cut into batches, depends on its number and the seed.

    Of several processes each takes every n-th batch of a pool, with `tokens_per_step` shared between them.
    """

    name = "reading"
    judged_by = "dev_exact_match"

    def __init__(
        self,
        generator: PreTrainedModel,
        wording: Wording,
        make_examples: MakeExamples,
        config: ReadingConfig,
        machine: Machine,
        dev: Sequence[Question],
    ) -> None:
        self._generator = generator
        self._wording = wording
        self._make_examples = make_examples
        self._config = config
        self._machine = machine
        self._dev = dev
        self._place = {"pool": 0, "batch": 0}
        self._batches = self._walk()

    def learn(self, step: int, gather: Callable[[], None]) -> Mapping[str, float]:
        config = self._config
        guidance = config.guidance * max(0.0, 1 - step / (0.7 * config.steps))
        parts = [
            collate(part, self._wording).to(self._machine.device)
            for part in parts_of(next(self._batches), config.accumulate)
        ]
        tokens = sum(int((part.targets >= 0).sum()) for part in parts)
        guided = sum(int(part.evidence.any(dim=-1).sum()) for part in parts)
        total = 0.0
        for part in parts:
            loss, nll = reading_loss(
                self._generator,
                part,
                guidance=guidance,
                guided_heads=config.guided_heads,
                tokens=tokens,
                guided_tokens=guided,
            )
            torch.autograd.backward(loss)
            gather()
            total += float(nll)
        return {"nll": total}

    def place(self) -> Mapping[str, int]:
        return self._place

    def go_to(self, place: Mapping[str, int]) -> None:
        self._place = dict(place)
        self._batches = self._walk()

    def evaluate(self) -> Mapping[str, float]:
        if not self._dev:
            return {}
        matched, overlap = reading_scores(self._generator, self._wording, self._dev)
        return {"dev_exact_match": matched, "dev_f1": overlap, "questions": len(self._dev)}

    def _walk(self) -> Iterator[list[EncodedExample]]:
        replicas = self._machine.replicas
        while True:
            pool = self._place["pool"]
            batches = self.pool(pool)
            together = len(batches) // replicas.count * replicas.count
            if not together:
                raise SourceInvalid(
                    source="examples_per_pool",
                    reason=f"{self._config.examples_per_pool} examples make {len(batches)} batches, "
                    f"{replicas.count} processes need one each",
                )
            mine = batches[replicas.rank : together : replicas.count]
            for number in range(self._place["batch"], len(mine)):
                self._place = {"pool": pool, "batch": number + 1}
                yield mine[number]
            self._place = {"pool": pool + 1, "batch": 0}

    def pool(self, number: int) -> list[list[EncodedExample]]:
        """The batches of a pool."""
        config = self._config
        encoded = encode_examples(
            self._make_examples(number, config.examples_per_pool),
            self._wording,
            max_input_length=config.max_input_length,
            max_target_length=config.max_target_length,
        )
        return list(
            batches_by_length(
                encoded,
                # an answer is shorter than what it is read from, but for a closed book
                [max(len(example.input_ids), len(example.target_ids)) for example in encoded],
                tokens=config.tokens_per_step // self._machine.replicas.count,
                random_state=random_of(config.seed, "batches", number),
            )
        )


def parts_of(items: Sequence[Item], count: int) -> list[Sequence[Item]]:
    """`items` in at most `count` parts of about equal size, none empty."""
    count = min(count, len(items))
    bounds = [round(i * len(items) / count) for i in range(count + 1)]
    return [items[bounds[i] : bounds[i + 1]] for i in range(count)]


def train_reading(
    generator: PreTrainedModel,
    wording: Wording,
    make_examples: MakeExamples,
    config: ReadingConfig,
    *,
    state_file: Path,
    log: Log,
    dev: Sequence[Question] = (),
    machine: Machine | None = None,
    progress: Progress = no_progress,
) -> None:
    """Train `generator` in place; it is left in float32 and in evaluation mode.

    Begins again from `state_file` where there is one, at the step that it holds, in the pool that it was in.
    """
    machine = machine or Machine()
    generator.to(machine.device).float()
    generator.set_attn_implementation("eager")
    groups = generator_groups(generator, config)
    optimizer = MasterAdamW(
        groups,
        frozen=frozen_parameters(generator),
        replicas=machine.replicas,
        weight_decay=config.weight_decay,
    )
    generator.to(machine.dtype)
    train_stage(
        ReadingTask(generator, wording, make_examples, config, machine, dev),
        generator,
        optimizer,
        config,
        state_file=state_file,
        machine=machine,
        log=log,
        progress=progress,
    )
    optimizer.copy_masters_to(generator)
