"""The loop of a stage: what it hands on after a kill, when it stops early, and what parts of a batch add up to."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from openbook.rag.wording import Wording
from openbook_lab.training.dropout import MaskedDropout, silence_dropout
from openbook_lab.training.examples import Question
from openbook_lab.training.joint import JointConfig, JointTask, train_joint
from openbook_lab.training.loop import MasterAdamW, ParameterGroup, Replicas
from openbook_lab.training.reading import ReadingConfig, ReadingTask, parts_of, train_reading
from openbook_lab.training.replicas import machine_of
from openbook_lab.training.retrieval import Library, LibraryQuestion
from openbook_lab.training.stage import Machine, Stopping, train_stage
from openbook_lab.training.warm_start import warm_start_generator, warm_start_question_encoder
from tests.openbook_lab.training.test_joint import PASSAGES, QUESTIONS
from tests.openbook_lab.training.test_reading import CONFIG, Pools

FLOAT32 = Machine(dtype=torch.float32)


class Counting:
    """A weight that grows by one a step (by the sign of its gradient), judged by scores that are told beforehand."""

    name = "counting"
    judged_by = "score"

    def __init__(self, scores: Mapping[int, float]) -> None:
        self.model = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(self.model.weight)
        self._scores = scores
        self.steps: list[int] = []

    def learn(self, step: int, gather: Callable[[], None]) -> Mapping[str, float]:
        self.steps.append(step)
        self.model(torch.ones(1, 1)).sum().neg().backward()
        gather()
        return {"nll": 1.0}

    def place(self) -> Mapping[str, int]:
        return {}

    def go_to(self, place: Mapping[str, int]) -> None:
        assert not place

    def evaluate(self) -> Mapping[str, float]:
        return {"score": self._scores[self.steps[-1] + 1]}


def count(task: Counting, folder: Path, *, patience: int, steps: int = 12, save_every: int = 100) -> list[Any]:
    lines: list[Any] = []
    optimizer = MasterAdamW([ParameterGroup((task.model.weight,), 1.0)], weight_decay=0.0)
    config = ReadingConfig(
        steps=steps, warm_up=0, evaluate_every=2, save_every=save_every, patience=patience, dropout=0.0
    )
    train_stage(
        task,  # type: ignore[arg-type]
        task.model,  # type: ignore[arg-type]
        optimizer,
        config,
        state_file=folder / "state.pt",
        machine=FLOAT32,
        log=lines.append,
    )
    return lines


def test_the_best_state_is_kept_and_of_equals_the_later(tmp_path: Path) -> None:
    scores = {2: 10.0, 4: 30.0, 6: 30.0, 8: 20.0, 10: 29.0, 12: 99.0}
    task, until_six = Counting(scores), Counting(scores)
    lines = count(task, tmp_path / "a", patience=3)
    assert task.steps[-1] + 1 == 10  # 6, 8 and 10 are no better than 4
    assert lines[-1] == {"step": 10, "kept": 6, "score": 30.0}
    assert [line["score"] for line in lines if "score" in line] == [10.0, 30.0, 30.0, 20.0, 29.0, 30.0]
    optimizer = MasterAdamW([ParameterGroup((until_six.model.weight,), 1.0)], weight_decay=0.0)
    for step in range(6):
        until_six.learn(step, optimizer.gather)
        optimizer.step(0.5 * (1 + torch.cos(torch.tensor(torch.pi * step / 12)).item()))
    torch.testing.assert_close(task.model.weight, until_six.model.weight)


def test_without_patience_every_step_is_taken_and_the_last_state_stays(tmp_path: Path) -> None:
    task = Counting(dict.fromkeys(range(2, 13, 2), 1.0) | {2: 50.0})
    lines = count(task, tmp_path, patience=0)
    assert task.steps == list(range(12))
    assert "kept" not in lines[-1]
    assert not (tmp_path / "state_best.pt").exists()


def test_a_stage_that_stopped_early_stops_again_where_it_did(tmp_path: Path) -> None:
    scores = {2: 10.0, 4: 5.0, 6: 5.0, 8: 50.0}
    first, again = Counting(scores), Counting(scores)
    count(first, tmp_path, patience=2)
    lines = count(again, tmp_path, patience=2)
    assert first.steps == list(range(6))
    assert again.steps == []
    assert lines == [{"step": 6, "kept": 2, "score": 10.0}]
    torch.testing.assert_close(again.model.weight, first.model.weight, atol=0, rtol=0)


def test_a_score_that_is_equal_resets_no_patience() -> None:
    stopping = Stopping(2)
    assert [stopping.hear(score, step) for step, score in enumerate((3.0, 3.0, 3.0))] == [True, True, True]
    assert stopping.ended
    assert stopping.best_step == 2


def test_parts_are_even_and_hold_everything_once() -> None:
    assert parts_of([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4, 5]]
    assert parts_of([1, 2], 5) == [[1], [2]]


def gradients(task: ReadingTask | JointTask, model: torch.nn.Module) -> tuple[Mapping[str, float], dict[str, Any]]:
    """What one step logs, and the gradients that it leaves, gathered part by part."""
    total: dict[str, Any] = {}

    def gather() -> None:
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                total[name] = total.get(name, 0) + parameter.grad
                parameter.grad = None

    return task.learn(0, gather), total


def test_the_parts_of_a_reading_batch_add_up_to_the_whole(
    bert_folder: Path, questions: list[Question], wording: Wording
) -> None:
    generator = warm_start_generator(bert_folder, decoder_layers=(0, 1)).eval()
    generator.set_attn_implementation("eager")
    found = []
    for accumulate in (1, 3):
        config = replace(CONFIG, tokens_per_step=2000, accumulate=accumulate)
        found.append(gradients(ReadingTask(generator, wording, Pools(questions), config, FLOAT32, ()), generator))
    same(*found)


def test_the_parts_of_a_joint_batch_add_up_to_the_whole(
    bert_folder: Path, tokenizer: PreTrainedTokenizerBase, wording: Wording
) -> None:
    generator = warm_start_generator(bert_folder, decoder_layers=(0, 1)).eval()
    encoder = warm_start_question_encoder(bert_folder).eval()
    torch.manual_seed(1)
    libraries = {"world": Library(PASSAGES, torch.randn(4, 32) * 0.3)}
    found = []
    for accumulate in (1, 2):
        config = JointConfig(questions_per_step=3, n_docs=3, accumulate=accumulate)
        task = JointTask(
            encoder, generator, tokenizer, wording, libraries, drawn, config, FLOAT32, dev=(), dev_library=None
        )
        found.append(gradients(task, torch.nn.ModuleList([generator, encoder])))
    same(*found)


def drawn(random_state: random.Random) -> LibraryQuestion:
    return random_state.choice(QUESTIONS)


def same(whole: tuple[Mapping[str, float], dict[str, Any]], parts: tuple[Mapping[str, float], dict[str, Any]]) -> None:
    assert parts[0] == pytest.approx(whole[0], rel=1e-5)
    assert len(whole[1]) > 40
    for name, gradient in whole[1].items():
        torch.testing.assert_close(parts[1][name], gradient, atol=1e-5, rtol=1e-3, msg=name)


def test_dropout_of_a_step_does_not_hang_on_the_steps_before() -> None:
    layer = torch.nn.ModuleDict({"fc2": torch.nn.Identity()})
    dropout = MaskedDropout(0.5, seed="a", dtype=torch.float32, longest=5000)
    dropout.attach(layer)
    ones = torch.ones(7, 100)  # (7, 100)
    dropout.begin(3)
    first = layer["fc2"](ones)
    layer["fc2"](ones)
    dropout.begin(4)
    assert (layer["fc2"](ones) != first).any()
    dropout.begin(3)
    assert torch.equal(layer["fc2"](ones), first)
    assert layer["fc2"](torch.ones(60, 100)).shape == (60, 100)  # longer than the mask


@pytest.mark.parametrize("kind", ["bart", "t5"])
def test_no_dropout_of_transformers_is_left_to_draw(
    kind: str, tiny_bart_checkpoint: Path, tiny_t5_checkpoint: Path
) -> None:
    from openbook.rag.checkpoint import load_checkpoint

    generator = load_checkpoint({"bart": tiny_bart_checkpoint, "t5": tiny_t5_checkpoint}[kind]).generator
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
        drawn = [generator(input_ids=ids, decoder_input_ids=ids[:, :4]).logits for _ in range(2)]
    assert torch.equal(*drawn)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_both_stages_train_and_are_measured_on_a_gpu(
    bert_folder: Path,
    tokenizer: PreTrainedTokenizerBase,
    questions: list[Question],
    wording: Wording,
    tmp_path: Path,
) -> None:
    machine = machine_of("cuda", "auto", Replicas())
    generator, encoder = warm_start_generator(bert_folder), warm_start_question_encoder(bert_folder)
    lines: list[Any] = []
    for steps in (2, 3):  # the second goes on from the state of the first
        train_reading(
            generator,
            wording,
            Pools(questions),
            replace(CONFIG, steps=steps, patience=5, evaluate_every=1),
            state_file=tmp_path / "reading.pt",
            log=lines.append,
            dev=questions[:2],
            machine=machine,
        )
    library = Library(PASSAGES, torch.randn(4, 32))
    train_joint(
        encoder,
        generator,
        tokenizer,
        wording,
        {"world": library},
        drawn,
        JointConfig(steps=2, questions_per_step=2, n_docs=4, accumulate=2),
        state_file=tmp_path / "joint.pt",
        log=lines.append,
        dev=questions[:2],
        dev_library=library,
        machine=machine,
    )
    assert "open_exact_match" in lines[-1]
    assert generator.device.type == encoder.device.type == "cuda"
    assert all(bool(parameter.isfinite().all()) for parameter in generator.parameters())
