"""The question encoder's beginning: a DPRQuestionEncoder learns to give the passage encoder's own vectors.

The passage encoder's vectors have length 1, so their inner products lie in [-1, 1] and a softmax over them is nearly
flat. The question's vectors are therefore learnt `scale` times as long, which the last LayerNorm takes in: the prior
p(z | x) is then softmax(scale * cosine), and the folder is still a plain DPR.
"""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import DPRQuestionEncoder

from openbook_lab.training.machine import ALONE, Machine
from openbook_lab.training.optimizer import MasterAdamW, learning_rate, question_groups
from openbook_lab.training.recipe import DistillationConfig
from openbook_lab.training.stage import Log, Progress, no_progress, random_of
from openbook_lab.training.vectors import TextEncoder

LOG_EVERY = 20


def encode_questions(
    encoder: DPRQuestionEncoder, tokenizer: Any, questions: Sequence[str], *, max_length: int | None = None
) -> Tensor:
    """The vectors q(x) in float32, with a gradient if gradients are enabled: (B, d).

    Cuts a question to `max_length` tokens; None: to as many as the encoder can read, as in serving.
    """
    inputs = tokenizer(
        list(questions),
        padding=True,
        pad_to_multiple_of=8,
        truncation=True,
        max_length=max_length or encoder.config.max_position_embeddings,
        return_tensors="pt",
    ).to(encoder.device)
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
    machine: Machine = ALONE,
    progress: Progress = no_progress,
) -> None:
    """Teach `encoder`, in place, `scale` times the teacher's vectors; it ends in float32 and in evaluation mode."""
    encoder.to(machine.device).eval()
    vectors = teacher.encode_texts(questions, batch_size=256)  # (N, d)
    fold_scale(encoder, tokenizer, questions[:64], config.scale)
    encoder.set_attn_implementation("eager")
    optimizer = MasterAdamW([encoder], question_groups(encoder, config.rate))
    encoder.to(machine.dtype)
    # Neighbours in length share a batch: little of it is padding.
    shuffled = random_of(config.seed, "distillation").sample(range(len(questions)), len(questions))
    order = sorted(shuffled, key=lambda i: len(questions[i]))
    size = min(config.questions_per_step, len(questions))
    began = time.monotonic()
    similar: list[float] = []
    for step in range(1, config.steps + 1):
        start = random_of(config.seed, "distillation", step - 1).randrange(len(order) - size + 1)
        rows = order[start : start + size]
        made = encode_questions(
            encoder, tokenizer, [questions[i] for i in rows], max_length=config.max_length
        )  # (B, d)
        wanted = torch.from_numpy(vectors[rows]).to(machine.device)  # (B, d)
        loss = (made / config.scale - wanted).square().sum(dim=-1).mean()  # ()
        torch.autograd.backward(loss)
        optimizer.step(learning_rate(step - 1, steps=config.steps, warm_up=config.warm_up))
        progress(step, config.steps, "distillation")
        similar.append(float(torch.nn.functional.cosine_similarity(made.detach(), wanted).mean()))
        if step % LOG_EVERY == 0 or step == config.steps:
            cosine, seconds = sum(similar) / len(similar), (time.monotonic() - began) / step
            log({"step": step, "loss": float(loss.detach()), "cosine": cosine, "s/step": seconds})
            similar.clear()
    optimizer.finish()


@torch.no_grad()
def fold_scale(encoder: DPRQuestionEncoder, tokenizer: Any, questions: Sequence[str], scale: float) -> None:
    """Scale the last LayerNorm, or the projection behind it, until these vectors have a mean length of `scale`."""
    length = encode_questions(encoder, tokenizer, questions).norm(dim=-1).mean()  # ()
    inner = encoder.question_encoder
    last = inner.encode_proj if inner.projection_dim > 0 else inner.bert_model.encoder.layer[-1].output.LayerNorm
    last.weight.mul_(scale / length)
    last.bias.mul_(scale / length)
