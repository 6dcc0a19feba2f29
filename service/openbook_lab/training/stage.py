"""The loop of a stage: its steps, evaluations, early stopping and states.

Every random number of a step follows from (seed, stage, step, process), and a state file holds all that one step hands
to the next. So a killed run that resumes ends with the weights of an uninterrupted run.
"""

import itertools
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from transformers import PreTrainedModel

from openbook_lab.datasets.questions import Question
from openbook_lab.training.dropout import MaskedDropout, silence_dropout
from openbook_lab.training.machine import ALONE, Machine
from openbook_lab.training.optimizer import MasterAdamW, ParameterGroup, learning_rate
from openbook_lab.training.recipe import StageConfig

Item = TypeVar("Item")
Log = Callable[[Mapping[str, Any]], None]
Progress = Callable[[int, int | None, str], None]


def no_progress(_done: int, _total: int | None, _what: str) -> None:
    """Show nothing."""


@dataclass
class Task(ABC):
    """What a stage does in a step, and how it is judged.

    judged_by   the score of `evaluate` that early stopping follows
    dev         held-out questions
    place       the place in the data after a step; a task whose place is set before the first step resumes there
    """

    name: ClassVar[str]
    judged_by: ClassVar[str]
    config: StageConfig
    _: KW_ONLY
    machine: Machine = ALONE
    dev: Sequence[Question] = ()
    place: dict[str, int] = field(default_factory=dict)

    @property
    @abstractmethod
    def models(self) -> Sequence[PreTrainedModel]:
        """The models that the stage trains, the generator first."""

    @abstractmethod
    def groups(self) -> list[ParameterGroup]:
        """The parameters that it trains; all others are frozen."""

    @abstractmethod
    def learn(self, step: int, gather: Callable[[], None]) -> Mapping[str, float]:
        """Leave the gradient of one step, calling `gather` after each part of it. Returns numbers for the log."""

    @abstractmethod
    def evaluate(self) -> Mapping[str, float]:
        """Scores on the held-out questions; empty without such questions."""


@dataclass(slots=True)
class Stopping:
    """Early stopping: the best evaluation so far, and how many evaluations since then were no better."""

    best: float = float("-inf")
    best_step: int = 0
    waited: int = 0

    def hear(self, score: float, step: int) -> bool:
        """Whether the state of this step is the best so far; of equals, the later is."""
        self.waited = 0 if score > self.best else self.waited + 1
        if score >= self.best:
            self.best, self.best_step = score, step
        return step == self.best_step

    def ended(self, patience: int) -> bool:
        return 0 < patience <= self.waited


def train_stage(task: Task, *, state_file: Path, log: Log, progress: Progress = no_progress) -> None:
    """Train the task's models in place; they end in float32 and in evaluation mode. Resumes from `state_file`.

    Of several processes, the first one evaluates, saves and logs.
    """
    config, machine = task.config, task.machine
    is_first = machine.rank == 0
    for model in task.models:
        model.to(machine.device).float().eval()
        model.set_attn_implementation("eager")
    optimizer = MasterAdamW(task.models, task.groups(), machine=machine, weight_decay=config.weight_decay)
    for model in task.models:
        model.to(machine.dtype)
    state_file.parent.mkdir(parents=True, exist_ok=True)
    best_file = state_file.with_name(f"{state_file.stem}_best.pt")
    step, stopping = 0, Stopping()
    if state := load_state(state_file):
        step, stopping, task.place = int(state["step"]), Stopping(**state["stopping"]), state["place"]
        optimizer.load_state_dict(state["optimizer"])
    generator = task.models[0]
    silence_dropout(generator)
    seed = f"{config.seed} {task.name} dropout {machine.rank}"
    dropout = MaskedDropout(config.dropout, seed=seed, dtype=machine.dtype, device=machine.device)
    handles = dropout.attach(generator)
    generator.train()
    began, first = time.monotonic(), step
    heard: list[Mapping[str, float]] = []
    if is_first:
        progress(step, config.steps, task.name)
    while step < config.steps and not stopping.ended(config.patience):
        dropout.begin(step)
        heard.append(task.learn(step, optimizer.gather))
        rate = learning_rate(step, steps=config.steps, warm_up=config.warm_up)
        norm = optimizer.step(rate)
        step += 1
        judged = step % config.evaluate_every == 0 or step == config.steps
        if is_first:
            progress(step, config.steps, task.name)
            if step % config.log_every == 0 or step == config.steps:
                seconds = (time.monotonic() - began) / (step - first)
                log({"step": step, **_means(heard), "norm": norm, "rate": rate, "s/step": seconds})
                heard.clear()
            if judged:
                generator.eval()
                scores = task.evaluate()
                generator.train()
                if scores:
                    log({"step": step, **scores})
                if config.patience and stopping.hear(scores[task.judged_by], step):
                    save_state(best_file, {"masters": optimizer.masters()})
            if judged or step % config.save_every == 0:
                place = {"step": step, "place": task.place, "stopping": asdict(stopping)}
                save_state(state_file, {**place, "optimizer": optimizer.state_dict()})
        if judged and config.patience:
            stopping.waited = machine.first_says(stopping.waited)
    for handle in handles:
        handle.remove()
    if config.patience and is_first:
        if best := load_state(best_file):
            optimizer.load_masters(best["masters"])
        log({"step": step, "kept": stopping.best_step, task.judged_by: stopping.best})
    generator.eval()
    optimizer.finish()


def _means(heard: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number over the steps that have it."""
    values = {name: [step[name] for step in heard if name in step] for step in heard for name in step}
    return {name: sum(of_name) / len(of_name) for name, of_name in values.items()}


def parts_of(items: Sequence[Item], count: int) -> list[Sequence[Item]]:
    """`items` in at most `count` parts of about equal size, none empty."""
    count = min(count, len(items))
    bounds = [round(i * len(items) / count) for i in range(count + 1)] if count else []
    return [items[left:right] for left, right in itertools.pairwise(bounds)]


def random_of(*names: int | str) -> random.Random:
    """The random numbers of one place of a run, such as (seed, stage, step, rank): always the same there."""
    return random.Random(" ".join(map(str, names)))


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write aside, then rename: a kill leaves the state before or the state after."""
    aside = path.with_suffix(".tmp")
    torch.save(state, aside)
    aside.replace(path)


def load_state(path: Path) -> dict[str, Any] | None:
    """The state that `save_state` wrote; None where there is none."""
    return torch.load(path, weights_only=True, map_location="cpu") if path.is_file() else None
