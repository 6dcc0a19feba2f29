"""The optimisation that both training stages share: bf16 weights with float32 masters, schedule, batches by length."""

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")
LENGTH_MULTIPLE = 16


@dataclass(frozen=True, slots=True)
class ParameterGroup:
    """Parameters that share a learning rate; `peak` is the rate after warm-up."""

    parameters: tuple[torch.nn.Parameter, ...]
    peak: float


class MasterAdamW:
    """AdamW on float32 masters of parameters held in another precision.

    Pure bf16 would lose small updates; autocast would cast every weight at every use. The model keeps bf16 weights,
    the optimiser keeps the masters, and each step copies them down.
    """

    def __init__(
        self,
        groups: Sequence[ParameterGroup],
        *,
        weight_decay: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.98),
        clip: float = 1.0,
    ) -> None:
        self._live = [parameter for group in groups for parameter in group.parameters]
        self._masters = [parameter.detach().float().clone().requires_grad_() for parameter in self._live]
        self._peaks = [group.peak for group in groups]
        self._clip = clip
        masters = iter(self._masters)
        self._optimizer = torch.optim.AdamW(
            [{"params": [next(masters) for _ in group.parameters]} for group in groups],
            lr=1.0,
            betas=betas,
            weight_decay=weight_decay,
            fused=True,
        )
        for master in self._masters:
            master.grad = torch.zeros_like(master)

    def step(self, rate: float) -> float:
        """One update at `rate` times each group's peak; returns the gradient's norm before clipping.

        A gradient that is not finite is skipped: the norm says so.
        """
        gradients = [master.grad for master in self._masters if master.grad is not None]
        torch._foreach_copy_(gradients, [p.grad if p.grad is not None else torch.zeros_like(p) for p in self._live])
        norm = float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
        if math.isfinite(norm):
            if norm > self._clip:
                torch._foreach_mul_(gradients, self._clip / norm)
            for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
                group["lr"] = peak * rate
            self._optimizer.step()
            with torch.no_grad():
                torch._foreach_copy_(self._live, self._masters)
        for parameter in self._live:
            parameter.grad = None
        return norm

    def copy_masters_to(self, model: torch.nn.Module) -> None:
        """Make `model`, whose parameters these are, a float32 model with the masters' full precision."""
        masters = {id(live): master for live, master in zip(self._live, self._masters, strict=True)}
        named = [(parameter, masters.get(id(parameter))) for parameter in model.parameters()]
        model.float()
        with torch.no_grad():
            for parameter, master in named:
                if master is not None:
                    parameter.copy_(master)

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self._optimizer.state_dict(), "masters": [m.detach() for m in self._masters]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            torch._foreach_copy_(self._masters, state["masters"])
            torch._foreach_copy_(self._live, self._masters)


def learning_rate(step: int, *, steps: int, warm_up: int) -> float:
    """Linear warm-up, then half a cosine to zero: a factor in (0, 1] for step 0..steps-1."""
    if step < warm_up:
        return (step + 1) / warm_up
    return 0.5 * (1 + math.cos(math.pi * (step - warm_up) / max(1, steps - warm_up)))


def padded(length: int) -> int:
    """Shapes that recur are fast: lengths go up to the next multiple of 16."""
    return -(-length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE


def batches_by_length(
    items: Sequence[Item], lengths: Sequence[int], *, tokens: int, random_state: random.Random
) -> Iterator[list[Item]]:
    """Batches of items of like length, at most `tokens` padded tokens in each, in random order."""
    order = sorted(range(len(items)), key=lengths.__getitem__, reverse=True)
    batches: list[list[Item]] = []
    room = 0
    for index in order:
        if room == 0:
            batches.append([])
            room = max(1, tokens // padded(lengths[index]))
        batches[-1].append(items[index])
        room -= 1
    random_state.shuffle(batches)
    yield from batches


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write aside, then rename: a kill leaves the state before or the state after."""
    aside = path.with_suffix(".tmp")
    torch.save(state, aside)
    aside.replace(path)


def load_state(path: Path) -> dict[str, Any] | None:
    """The state that `save_state` wrote; None where there is none."""
    return torch.load(path, weights_only=True) if path.is_file() else None


def cross_entropy_of_targets(logits: Tensor, targets: Tensor) -> Tensor:
    """-log p of each target, in float32: (N, V), (N,) -> (N,)."""
    return torch.nn.functional.cross_entropy(logits.float(), targets, reduction="none")


Report = Callable[[str], None]
