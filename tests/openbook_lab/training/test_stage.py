"""The loop of a stage: what it hands on after a kill, when it stops early, and what parts of a batch add up to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from openbook.rag.checkpoint import load_checkpoint
from openbook_lab.datasets.questions import Question
from openbook_lab.training import dropout
from openbook_lab.training.dropout import MaskedDropout, silence_dropout
from openbook_lab.training.joint import JointTask
from openbook_lab.training.libraries import DEV, Library
from openbook_lab.training.machine import Machine
from openbook_lab.training.models import RagModels
from openbook_lab.training.optimizer import MasterAdamW, ParameterGroup
from openbook_lab.training.reading import ReadingTask
from openbook_lab.training.recipe import JointConfig, ReadingConfig
from openbook_lab.training.stage import Task, parts_of, train_stage
from openbook_lab.training.weights import alone_scores
from tests.openbook_lab.training.test_joint import PASSAGES, drawn
from tests.openbook_lab.training.test_reading import CONFIG, pools_of

FLOAT32 = Machine(dtype=torch.float32)
COUNTED = ReadingConfig(steps=12, warm_up=0, evaluate_every=2, save_every=100, dropout=0.0, weight_decay=0.0)


class Weight(torch.nn.Linear):
    """One weight, which begins at 0."""

    def __init__(self) -> None:
        super().__init__(1, 1, bias=False)
        torch.nn.init.zeros_(self.weight)

    def set_attn_implementation(self, _name: str) -> None:
        """It has no attention."""


@dataclass
class Counting(Task):
    """A weight that grows by one a step (by the sign of its gradient), judged by the given scores."""

    name = "counting"
    judged_by = "score"
    scores: Mapping[int, float]
    model: Weight = field(default_factory=Weight)
    steps: list[int] = field(default_factory=list)

    @property
    def models(self) -> Sequence[Any]:
        return [self.model]

    def groups(self) -> list[ParameterGroup]:
        return [ParameterGroup([self.model.weight], 1.0)]

    def learn(self, step: int, gather: Callable[[], None]) -> Mapping[str, float]:
        self.steps.append(step)
        self.model(torch.ones(1, 1)).sum().neg().backward()
        gather()
        return {"nll": 1.0}

    def evaluate(self) -> Mapping[str, float]:
        return {"score": self.scores[self.steps[-1] + 1]}


def count(scores: Mapping[int, float], folder: Path, *, patience: int) -> tuple[Counting, list[Any]]:
    """A task that has counted, and its log."""
    task, lines = Counting(replace(COUNTED, patience=patience), scores, machine=FLOAT32), list[Any]()
    train_stage(task, state_file=folder / "state.pt", log=lines.append)
    return task, lines


def test_the_best_state_is_kept_and_of_equals_the_later(tmp_path: Path) -> None:
    scores = {2: 10.0, 4: 30.0, 6: 30.0, 8: 20.0, 10: 29.0, 12: 99.0}
    task, lines = count(scores, tmp_path, patience=3)
    assert task.steps[-1] + 1 == 10  # 6, 8 and 10 are no better than 4
    assert lines[-1] == {"step": 10, "kept": 6, "score": 30.0}
    assert [line["score"] for line in lines if "score" in line] == [10.0, 30.0, 30.0, 20.0, 29.0, 30.0]
    until_six = Counting(COUNTED, scores, machine=FLOAT32)
    optimizer = MasterAdamW(until_six.models, until_six.groups(), weight_decay=0.0)
    for step in range(6):
        until_six.learn(step, optimizer.gather)
        optimizer.step(0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / 12)).item()))
    torch.testing.assert_close(task.model.weight, until_six.model.weight)


def test_without_patience_every_step_is_taken_and_the_last_state_stays(tmp_path: Path) -> None:
    task, lines = count(dict.fromkeys(range(2, 13, 2), 1.0) | {2: 50.0}, tmp_path, patience=0)
    assert task.steps == list(range(12))
    assert "kept" not in lines[-1]
    assert not (tmp_path / "state_best.pt").exists()


def test_a_stage_that_stopped_early_stops_again_where_it_did(tmp_path: Path) -> None:
    scores = {2: 10.0, 4: 5.0, 6: 5.0, 8: 50.0}
    first, _ = count(scores, tmp_path, patience=2)
    again, lines = count(scores, tmp_path, patience=2)
    assert first.steps == list(range(6))
    assert again.steps == []
    assert lines == [{"step": 6, "kept": 2, "score": 10.0}]
    torch.testing.assert_close(again.model.weight, first.model.weight, atol=0, rtol=0)


def test_parts_are_even_and_hold_everything_once() -> None:
    assert parts_of([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4, 5]]
    assert parts_of([1, 2], 5) == [[1], [2]]


@pytest.mark.parametrize(("stage", "parts"), [("reading", 3), ("joint", 2)])
def test_the_parts_of_a_batch_add_up_to_the_whole(
    models: RagModels, questions: list[Question], stage: str, parts: int
) -> None:
    trained = torch.nn.ModuleList([models.generator, models.question_encoder])
    torch.manual_seed(1)
    libraries = {"world": Library(PASSAGES, torch.randn(4, 32) * 0.3)}

    def learnt(accumulate: int) -> tuple[Mapping[str, float], dict[str, Any]]:
        """What one step logs, and its gradients, gathered part by part."""
        task: Task
        if stage == "reading":
            reading = replace(CONFIG, tokens_per_step=2000, accumulate=accumulate)
            task = ReadingTask(reading, models.generator, models.wording, pools_of(questions), machine=FLOAT32)
        else:
            joint = JointConfig(questions_per_step=3, n_docs=3, accumulate=accumulate)
            task = JointTask(joint, models, libraries, drawn, machine=FLOAT32)
        total: dict[str, Any] = {}

        def gather() -> None:
            for name, parameter in trained.named_parameters():
                if parameter.grad is not None:
                    total[name] = total.get(name, 0) + parameter.grad
                    parameter.grad = None

        return task.learn(0, gather), total

    (told, whole), (told_in_parts, summed) = learnt(1), learnt(parts)
    assert told_in_parts == pytest.approx(told, rel=1e-5)
    assert len(whole) > 40
    for name, gradient in whole.items():
        torch.testing.assert_close(summed[name], gradient, atol=1e-5, rtol=1e-3, msg=name)


def test_dropout_of_a_step_does_not_hang_on_the_steps_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dropout, "MASK_LENGTH", 5000)
    layer = torch.nn.ModuleDict({"fc2": torch.nn.Identity()})
    masked = MaskedDropout(0.5, seed="a", dtype=torch.float32)
    masked.attach(layer)
    ones = torch.ones(7, 100)  # (7, 100)
    masked.begin(3)
    first = layer["fc2"](ones)
    layer["fc2"](ones)
    masked.begin(4)
    assert (layer["fc2"](ones) != first).any()
    masked.begin(3)
    assert torch.equal(layer["fc2"](ones), first)
    assert layer["fc2"](torch.ones(60, 100)).shape == (60, 100)  # longer than the mask


def test_dropout_keeps_the_mean_and_rests_outside_training() -> None:
    layer = torch.nn.ModuleDict({"fc2": torch.nn.Identity(), "fc1": torch.nn.Identity()})
    MaskedDropout(0.25, seed="0", dtype=torch.float32).attach(layer)
    ones = torch.ones(100, 200)  # (100, 200)
    dropped = layer["fc2"](ones)
    assert sorted(dropped.unique().tolist()) == pytest.approx([0.0, 1 / 0.75])
    assert abs(float(dropped.mean()) - 1) < 0.02
    assert (layer["fc2"](ones) != dropped).any()
    assert layer["fc1"](ones) is ones
    assert layer.eval()["fc2"](ones) is ones


@pytest.mark.parametrize("folder", ["tiny_bart_checkpoint", "tiny_t5_checkpoint"])
def test_no_dropout_of_transformers_is_left_to_draw(folder: str, request: pytest.FixtureRequest) -> None:
    generator = load_checkpoint(request.getfixturevalue(folder)).generator
    for module in generator.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.5
        for name in ("dropout", "activation_dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.5)
    silence_dropout(generator)
    generator.train()
    ids = torch.arange(5, 15)[None]  # (1, 10)
    with torch.no_grad():
        logits = [generator(input_ids=ids, decoder_input_ids=ids[:, :4]).logits for _ in range(2)]
    assert torch.equal(*logits)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_both_stages_train_and_are_measured_on_a_gpu(
    models: RagModels, questions: list[Question], tmp_path: Path
) -> None:
    machine, dev, generator, lines = Machine.of("cuda", "auto"), questions[:2], models.generator, list[Any]()
    for steps in (2, 3):  # the second goes on from the state of the first
        config = replace(CONFIG, steps=steps, patience=5, evaluate_every=1)
        judge, pools = partial(alone_scores, models), pools_of(questions)
        reading = ReadingTask(config, generator, models.wording, pools, judge, machine=machine, dev=dev)
        train_stage(reading, state_file=tmp_path / "reading.pt", log=lines.append)
    library = Library(PASSAGES, torch.randn(4, 32).to(machine.device))
    numbers = JointConfig(steps=2, questions_per_step=2, n_docs=4, accumulate=2)
    libraries = {"world": library, DEV: library}
    joint = JointTask(numbers, models, libraries, drawn, machine=machine, dev=dev)
    train_stage(joint, state_file=tmp_path / "joint.pt", log=lines.append)
    assert "open_exact_match" in lines[-1]
    assert generator.device.type == models.question_encoder.device.type == "cuda"
    assert all(bool(parameter.isfinite().all()) for parameter in generator.parameters())
