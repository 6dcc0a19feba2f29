"""What the stages of training share: one loop of steps, evaluated, saved and begun again the same way.

Every random number of a step follows from (seed, stage, step, process), and what a state file holds is all that one
step hands to the next. So a run that was killed and begun again gives the weights of a run that was not.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from transformers import PreTrainedModel

from openbook_lab.training.dropout import MaskedDropout, silence_dropout
from openbook_lab.training.loop import ALONE, MasterAdamW, Replicas, learning_rate, load_state, save_state

Part = Literal["word-embeddings", "question-encoder", "generator-encoder", "generator-decoder"]
Log = Callable[[dict[str, Any]], None]
Progress = Callable[[int, int | None, str], None]

WORD_EMBEDDINGS: Part = "word-embeddings"


def no_progress(_done: int, _total: int | None, _what: str) -> None:
    """The progress of a caller that shows none."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a stage runs on: its device, the precision of its weights, and the processes that share the work."""

    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    dtype: torch.dtype = torch.bfloat16
    replicas: Replicas = ALONE


@dataclass(frozen=True, slots=True, kw_only=True)
class StageConfig:
    """What every stage that trains the generator is given.

    accumulate      parts that a step's batch is worked through in: the same result in a part of the memory
    patience        evaluations without improvement that end the stage, and the best state is kept; 0: all steps, the
                    last state
    freeze          parts that are left as they are
    """

    steps: int
    warm_up: int
    encoder_rate: float
    decoder_rate: float
    evaluate_every: int
    save_every: int
    weight_decay: float = 0.01
    dropout: float = 0.1
    max_input_length: int = 300
    max_target_length: int = 24
    accumulate: int = 1
    patience: int = 0
    log_every: int = 20
    freeze: tuple[Part, ...] = (WORD_EMBEDDINGS,)
    seed: int = 0


class Task(Protocol):
    """What a stage does in a step, and how it is judged."""

    name: str
    judged_by: str
    """The score of `evaluate` that early stopping follows."""

    def learn(self, step: int, gather: Callable[[], None]) -> Mapping[str, float]:
        """Leave the gradient of one step, calling `gather` after each part of it; what is to be logged comes back."""

    def place(self) -> Mapping[str, int]:
        """Where in its data the task stands after a step, for `go_to`."""

    def go_to(self, place: Mapping[str, int]) -> None:
        """Stand there again."""

    def evaluate(self) -> Mapping[str, float]:
        """Scores on held-out questions; none where there are no such questions."""


@dataclass(slots=True)
class Stopping:
    """Early stopping: which evaluation was best, and for how long there was none better."""

    patience: int
    best: float = float("-inf")
    best_step: int = 0
    waited: int = 0

    def hear(self, score: float, step: int) -> bool:
        """Whether the state of this step is the best so far; of equals, the later is."""
        better, equal = score > self.best, score == self.best
        self.waited = 0 if better else self.waited + 1
        if better or equal:
            self.best, self.best_step = score, step
        return better or equal

    @property
    def ended(self) -> bool:
        return 0 < self.patience <= self.waited

    def state(self) -> dict[str, float]:
        return {"best": self.best, "best_step": self.best_step, "waited": self.waited}


def train_stage(
    task: Task,
    generator: PreTrainedModel,
    optimizer: MasterAdamW,
    config: StageConfig,
    *,
    state_file: Path,
    machine: Machine,
    log: Log,
    progress: Progress = no_progress,
) -> None:
    """Take the steps of a stage that `state_file` does not hold yet; the optimiser's masters are the result.

    Of several processes, the first one evaluates, saves and logs.
    """
    replicas = machine.replicas
    state_file.parent.mkdir(parents=True, exist_ok=True)
    best_file = state_file.with_name(f"{state_file.stem}_best.pt")
    state = load_state(state_file) or {}
    stopping = Stopping(config.patience)
    step = int(state.get("step", 0))
    if state:
        optimizer.load_state_dict(state["optimizer"])
        task.go_to(state["place"])
        stopping = Stopping(config.patience, **state["stopping"])
    silence_dropout(generator)
    dropout = MaskedDropout(
        config.dropout,
        seed=f"{config.seed} {task.name} dropout {replicas.rank}",
        dtype=machine.dtype,
        device=machine.device,
    )
    handles = dropout.attach(generator)
    generator.train()
    began, first = time.monotonic(), step
    heard: list[Mapping[str, float]] = []
    if replicas.rank == 0:
        progress(step, config.steps, task.name)
    while step < config.steps and not stopping.ended:
        dropout.begin(step)
        heard.append(task.learn(step, optimizer.gather))
        rate = learning_rate(step, steps=config.steps, warm_up=config.warm_up)
        norm = optimizer.step(rate)
        step += 1
        judged = step % config.evaluate_every == 0 or step == config.steps
        if replicas.rank == 0:
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
                place = {"step": step, "place": dict(task.place()), "stopping": stopping.state()}
                save_state(state_file, {**place, "optimizer": optimizer.state_dict()})
        if judged and config.patience:
            stopping.waited = replicas.first_says(stopping.waited, machine.device)
    for handle in handles:
        handle.remove()
    if config.patience and replicas.rank == 0:
        best = load_state(best_file)
        if best is not None:
            optimizer.load_masters([tensor.to(machine.device) for tensor in best["masters"]])
        log({"step": step, "kept": stopping.best_step, task.judged_by: stopping.best})
    generator.eval()


def _means(heard: list[Mapping[str, float]]) -> dict[str, float]:
    """Of each number over the lines that have it."""
    told = {name: [line[name] for line in heard if name in line] for line in heard for name in line}
    return {name: sum(values) / len(values) for name, values in told.items()}
