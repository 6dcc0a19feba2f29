"""The question encoder's beginning: a DPRQuestionEncoder taught to give the passage encoder's own vectors.

The passage encoder is normalised, so its inner products lie in [-1, 1] and a softmax over them is nearly flat. The
question's vectors are therefore learnt `scale` times as long, which its last LayerNorm takes in: the prior
p(z | x) is then softmax(scale * cosine), and the folder is still a plain DPR.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DPRQuestionEncoder

from openbook_lab.training.loop import MasterAdamW, frozen_parameters, learning_rate, random_of
from openbook_lab.training.parts import question_groups
from openbook_lab.training.stage import Log, Machine, Progress, no_progress
from openbook_lab.training.vectors import TextEncoder


@dataclass(frozen=True, slots=True)
class DistillationConfig:
    steps: int = 200
    questions_per_step: int = 128
    warm_up: int = 20
    rate: float = 4e-4
    scale: float = 28.0
    max_length: int = 48
    seed: int = 0


def encode_questions(
    encoder: DPRQuestionEncoder, tokenizer: Any, questions: Sequence[str], *, max_length: int | None = None
) -> Tensor:
    """The vectors q(x) in float32, with a gradient where one is wanted: (B, d).

    A question is cut to `max_length` tokens; None: to those that the encoder can read, as in serving.
    """
    inputs = tokenizer(
        list(questions),
        padding=True,
        pad_to_multiple_of=8,
        truncation=True,
        max_length=max_length or encoder.config.max_position_embeddings,
        return_tensors="pt",
    )
    inputs = inputs.to(encoder.device)
    pooled: Tensor = encoder(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).pooler_output
    return pooled.float()  # (B, d)


def distil_question_encoder(
    encoder: DPRQuestionEncoder,
    tokenizer: Any,
    questions: Sequence[str],
    teacher: TextEncoder,
    config: DistillationConfig,
    *,
    log: Log,
    machine: Machine | None = None,
    progress: Progress = no_progress,
) -> None:
    """Teach `encoder`, in place, `scale` times the teacher's vectors; it is left in float32, in evaluation mode."""
    machine = machine or Machine()
    encoder.to(machine.device)
    vectors = teacher.encode_texts(questions, batch_size=256)  # (N, d)
    encoder.eval()
    fold_scale(encoder, tokenizer, questions[:64], config.scale)
    encoder.set_attn_implementation("eager")
    groups = question_groups(encoder, config.rate)
    optimizer = MasterAdamW(groups, frozen=frozen_parameters(encoder))
    encoder.to(machine.dtype)
    # Neighbours in length share a batch: little of it is padding.
    shuffled = random_of(config.seed, "distillation").sample(range(len(questions)), len(questions))
    order = sorted(shuffled, key=lambda i: len(questions[i]))
    size = min(config.questions_per_step, len(questions))
    began = time.monotonic()
    similar: list[float] = []
    for step in range(config.steps):
        start = random_of(config.seed, "distillation", step).randrange(len(order) - size + 1)
        rows = order[start : start + size]
        made = encode_questions(
            encoder, tokenizer, [questions[i] for i in rows], max_length=config.max_length
        )  # (B, d)
        wanted = torch.from_numpy(vectors[rows]).to(machine.device)  # (B, d)
        loss = (made / config.scale - wanted).square().sum(dim=-1).mean()  # ()
        torch.autograd.backward(loss)
        optimizer.step(learning_rate(step, steps=config.steps, warm_up=config.warm_up))
        progress(step + 1, config.steps, "distillation")
        similar.append(float(torch.nn.functional.cosine_similarity(made.detach(), wanted).mean()))
        if (step + 1) % 20 == 0 or step + 1 == config.steps:
            seconds = (time.monotonic() - began) / (step + 1)
            log(
                {
                    "step": step + 1,
                    "loss": float(loss.detach()),
                    "cosine": sum(similar) / len(similar),
                    "s/step": seconds,
                }
            )
            similar.clear()
    optimizer.copy_masters_to(encoder)
    encoder.eval()


@torch.no_grad()
def fold_scale(encoder: DPRQuestionEncoder, tokenizer: Any, questions: Sequence[str], scale: float) -> None:
    """Scale the last LayerNorm, or the projection behind it, so that the mean length of these questions' vectors
    becomes `scale`."""
    length = encode_questions(encoder, tokenizer, questions).norm(dim=-1).mean()  # ()
    inner = encoder.question_encoder
    projected = inner.projection_dim > 0
    last = inner.encode_proj if projected else inner.bert_model.encoder.layer[-1].output.LayerNorm
    last.weight.mul_(scale / length)
    last.bias.mul_(scale / length)


def dimension_of(encoder: DPRQuestionEncoder) -> int:
    """How long its vectors are: d."""
    return int(encoder.config.projection_dim or encoder.config.hidden_size)
