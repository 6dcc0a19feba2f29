"""The optimiser of all stages: float32 masters of the weights, which weights it trains, and at what rate."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import DPRQuestionEncoder, PreTrainedModel

from openbook_lab.training.machine import ALONE, Machine
from openbook_lab.training.recipe import WORD_EMBEDDINGS, GeneratorConfig

BETAS = (0.9, 0.98)
# the largest norm of a gradient
CLIP = 1.0


class ParameterGroup(NamedTuple):
    """Parameters that share a learning rate; `peak` is the rate after warm-up."""

    parameters: Sequence[torch.nn.Parameter]
    peak: float


class MasterAdamW:
    """AdamW on float32 masters of parameters held in another precision.

    Pure bf16 would lose small updates; autocast would cast every weight at every use. The model keeps bf16 weights,
    the optimiser keeps the masters, and each step copies them down. Make it while `models` are still in float32: the
    masters, and the copies of frozen parameters, are then exact.
    """

    def __init__(
        self,
        models: Sequence[torch.nn.Module],
        groups: Sequence[ParameterGroup],
        *,
        machine: Machine = ALONE,
        weight_decay: float = 0.01,
    ) -> None:
        self._models = models
        self._live = [parameter for group in groups for parameter in group.parameters]
        self._masters = [parameter.detach().float().clone().requires_grad_() for parameter in self._live]
        frozen = (parameter for model in models for parameter in model.parameters() if not parameter.requires_grad)
        self._frozen = {parameter: parameter.detach().float().clone() for parameter in frozen}
        self._peaks = [group.peak for group in groups]
        self._machine = machine
        masters = iter(self._masters)
        trained = [{"params": [next(masters) for _ in group.parameters]} for group in groups]
        self._optimizer = torch.optim.AdamW(trained, lr=1.0, betas=BETAS, weight_decay=weight_decay, fused=True)
        # One stretch of memory for all gradients: one message between processes, one norm, one scaling.
        device = self._masters[0].device
        self._gradient = torch.zeros(sum(master.numel() for master in self._masters), device=device)  # (P,)
        parts = torch.split(self._gradient, [master.numel() for master in self._masters])
        for master, part in zip(self._masters, parts, strict=True):
            master.grad = part.view_as(master)

    @torch.no_grad()
    def gather(self) -> None:
        """Move the models' gradients to the masters, where they add up in float32."""
        for live, master in zip(self._live, self._masters, strict=True):
            if live.grad is not None and master.grad is not None:
                master.grad.add_(live.grad)
            live.grad = None

    def step(self, rate: float) -> float:
        """Update by all gradients since the last step, at `rate` times each group's peak.

        Returns the gradient's norm before clipping. A gradient that is not finite is skipped.
        """
        self.gather()
        self._machine.average(self._gradient)
        norm = float(torch.linalg.vector_norm(self._gradient))
        if math.isfinite(norm):
            if norm > CLIP:
                self._gradient.mul_(CLIP / norm)
            for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
                group["lr"] = peak * rate
            self._optimizer.step()
            with torch.no_grad():
                torch._foreach_copy_([*self._live], self._masters)
        self._gradient.zero_()
        return norm

    @torch.no_grad()
    def finish(self) -> None:
        """Turn the models into float32 models with the full precision of masters and frozen parameters."""
        exact = dict(zip(self._live, self._masters, strict=True)) | self._frozen
        for model in self._models:
            model.float()
            for parameter in model.parameters():
                if parameter in exact:
                    parameter.copy_(exact[parameter])

    def masters(self) -> list[Tensor]:
        return [master.detach() for master in self._masters]

    @torch.no_grad()
    def load_masters(self, masters: Sequence[Tensor]) -> None:
        """Take these weights, and copy them to the models."""
        torch._foreach_copy_(self._masters, [tensor.to(self._gradient.device) for tensor in masters])
        torch._foreach_copy_([*self._live], self._masters)

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self._optimizer.state_dict(), "masters": self.masters()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        self.load_masters(state["masters"])


def learning_rate(step: int, *, steps: int, warm_up: int) -> float:
    """Linear warm-up, then half a cosine to zero: a factor in (0, 1] for step 0..steps-1."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def generator_groups(generator: PreTrainedModel, config: GeneratorConfig) -> list[ParameterGroup]:
    """The generator without its frozen parts: the encoder, then everything else, word embeddings included."""
    train_logits_bias(generator)
    embeddings = generator.get_input_embeddings().weight
    encoder = [p for p in generator.get_encoder().parameters() if p is not embeddings]
    known = {id(parameter) for parameter in encoder}
    decoder = [p for p in generator.parameters() if id(p) not in known]
    for part, parameters in (("generator-encoder", encoder), ("generator-decoder", decoder)):
        for parameter in parameters:
            parameter.requires_grad_(part not in config.freeze)
    if WORD_EMBEDDINGS in config.freeze:
        embeddings.requires_grad_(False)
    groups = [
        ParameterGroup([p for p in parameters if p.requires_grad], rate)
        for parameters, rate in ((encoder, config.encoder_rate), (decoder, config.decoder_rate))
    ]
    return [group for group in groups if group.parameters]


def question_groups(encoder: DPRQuestionEncoder, rate: float, *, embeddings: bool = False) -> list[ParameterGroup]:
    """The whole question encoder, with or without its word embeddings."""
    encoder.requires_grad_(True)
    encoder.question_encoder.bert_model.embeddings.word_embeddings.requires_grad_(embeddings)
    return [ParameterGroup([p for p in encoder.parameters() if p.requires_grad], rate)]


def train_logits_bias(generator: PreTrainedModel) -> None:
    """Turn BART's `final_logits_bias`, a buffer, into a parameter: it makes up for frozen word embeddings."""
    bias = getattr(generator, "final_logits_bias", None)
    if bias is not None and not isinstance(bias, torch.nn.Parameter):
        del generator.final_logits_bias
        generator.final_logits_bias = torch.nn.Parameter(bias)
