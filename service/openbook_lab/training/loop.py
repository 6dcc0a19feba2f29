"""The optimisation that all stages share: float32 masters of weights, schedule, batches by length, states."""

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


@dataclass(frozen=True, slots=True)
class Replicas:
    """The processes that train one model together, each on its own part of every step; one alone by default.

    Several processes of one thread get through more than one process of several threads wherever a core is shared
    with other work: threads wait for each other at every operation, processes once a step.
    """

    rank: int = 0
    count: int = 1

    def average(self, tensor: Tensor) -> None:
        """Replace `tensor`, in place, by its mean over the processes."""
        if self.count > 1:
            torch.distributed.all_reduce(tensor)
            tensor.div_(self.count)

    def first_says(self, number: int, device: torch.device) -> int:
        """What the first process holds, told to all of them."""
        if self.count == 1:
            return number
        told = torch.tensor([number], device=device)
        torch.distributed.broadcast(told, 0)
        return int(told)


ALONE = Replicas()


class MasterAdamW:
    """AdamW on float32 masters of parameters held in another precision.

    Pure bf16 would lose small updates; autocast would cast every weight at every use. The model keeps bf16 weights,
    the optimiser keeps the masters, and each step copies them down. Made while the model is still in float32, the
    masters begin as its exact weights; `frozen` parameters are remembered likewise, to be given back at the end.
    """

    def __init__(
        self,
        groups: Sequence[ParameterGroup],
        *,
        frozen: Sequence[torch.nn.Parameter] = (),
        replicas: Replicas = ALONE,
        weight_decay: float = 0.01,
        betas: tuple[float, float] = (0.9, 0.98),
        clip: float = 1.0,
    ) -> None:
        self._live = [parameter for group in groups for parameter in group.parameters]
        self._masters = [parameter.detach().float().clone().requires_grad_() for parameter in self._live]
        self._frozen = [(parameter, parameter.detach().float().clone()) for parameter in frozen]
        self._peaks = [group.peak for group in groups]
        self._replicas = replicas
        self._clip = clip
        masters = iter(self._masters)
        self._optimizer = torch.optim.AdamW(
            [{"params": [next(masters) for _ in group.parameters]} for group in groups],
            lr=1.0,
            betas=betas,
            weight_decay=weight_decay,
            fused=True,
        )
        # One stretch of memory for all gradients: one message between processes, one norm, one scaling.
        device = self._masters[0].device
        self._gradient = torch.zeros(sum(master.numel() for master in self._masters), device=device)  # (P,)
        parts = torch.split(self._gradient, [master.numel() for master in self._masters])
        for master, part in zip(self._masters, parts, strict=True):
            master.grad = part.view_as(master)

    @torch.no_grad()
    def gather(self) -> None:
        """Add the model's gradients to the masters', in float32, and take them off the model."""
        for live, master in zip(self._live, self._masters, strict=True):
            if live.grad is not None and master.grad is not None:
                master.grad.add_(live.grad)
            live.grad = None

    def step(self, rate: float) -> float:
        """One update at `rate` times each group's peak, by all that was gathered since the last; returns the
        gradient's norm before clipping.

        A gradient that is not finite is skipped: the norm says so.
        """
        self.gather()
        self._replicas.average(self._gradient)
        norm = float(torch.linalg.vector_norm(self._gradient))
        if math.isfinite(norm):
            if norm > self._clip:
                self._gradient.mul_(self._clip / norm)
            for group, peak in zip(self._optimizer.param_groups, self._peaks, strict=True):
                group["lr"] = peak * rate
            self._optimizer.step()
            with torch.no_grad():
                torch._foreach_copy_([*self._live], self._masters)
        self._gradient.zero_()
        return norm

    def copy_masters_to(self, model: torch.nn.Module) -> None:
        """Make `model`, whose parameters these are, a float32 model with the masters' full precision."""
        model.float()
        exact = dict(zip(self._live, self._masters, strict=True)) | dict(self._frozen)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter in exact:
                    parameter.copy_(exact[parameter])

    def masters(self) -> list[Tensor]:
        """The masters themselves."""
        return [master.detach() for master in self._masters]

    @torch.no_grad()
    def load_masters(self, masters: Sequence[Tensor]) -> None:
        """Take these weights, and give them to the model."""
        torch._foreach_copy_(self._masters, list(masters))
        torch._foreach_copy_([*self._live], self._masters)

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self._optimizer.state_dict(), "masters": self.masters()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._optimizer.load_state_dict(state["optimizer"])
        self.load_masters([tensor.to(self._gradient.device) for tensor in state["masters"]])


def random_of(*names: int | str) -> random.Random:
    """The random numbers of one place of a run, such as (seed, stage, step, rank): the same whenever it is reached."""
    return random.Random(" ".join(map(str, names)))


def frozen_parameters(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """The parameters that training leaves as they are."""
    return [parameter for parameter in model.parameters() if not parameter.requires_grad]


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
    return torch.load(path, weights_only=True, map_location="cpu") if path.is_file() else None


Report = Callable[[str], None]
