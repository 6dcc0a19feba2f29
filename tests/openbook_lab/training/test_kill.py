"""Training that is killed in the middle of each stage and begun again ends with the weights of training that is not."""

import multiprocessing
import os
import random
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from openbook.entities import Passage
from openbook_lab.datasets.questions import Question
from openbook_lab.training.joint import JointTask
from openbook_lab.training.libraries import Library
from openbook_lab.training.machine import Machine, meet
from openbook_lab.training.models import RagModels
from openbook_lab.training.reading import ReadingTask
from openbook_lab.training.recipe import JointConfig, RetrievalConfig
from openbook_lab.training.retrieval import RetrievalTask
from openbook_lab.training.stage import Task, save_state, train_stage
from openbook_lab.training.worlds import LibraryQuestion
from tests.openbook_lab.training.test_reading import CONFIG, pools_of
from tests.waiting import PATIENCE_S

READING = replace(CONFIG, steps=6, save_every=3, log_every=1, dropout=0.2)
JOINT = JointConfig(
    steps=6, questions_per_step=4, n_docs=2, warm_up=2, save_every=3, log_every=1, dropout=0.2, question_rate=1e-3
)
RETRIEVAL = RetrievalConfig(
    steps=6, questions_per_step=4, n_docs=4, warm_up=2, save_every=3, log_every=1, question_rate=1e-3
)
# two steps after a state was saved, so that these are taken again
DEADLY_STEP = 5


def train(
    rank: int,
    *,
    count: int,
    folder: Path,
    meeting: Path,
    models: RagModels,
    questions: Sequence[Question],
    dies_in: str,
) -> None:
    """All stages in one of `count` processes; the first kills itself in the stage that `dies_in` names."""
    torch.set_num_threads(1)
    machine = Machine(rank=rank, count=count)
    if count > 1:
        meet(str(meeting), rank, count)
    passages = [
        Passage(str(n), q.title, sentence) for n, q in enumerate(questions) for sentence in q.context.split(". ")
    ]
    vectors = torch.randn(len(passages), 32, generator=torch.Generator().manual_seed(3))  # (N, d)
    asked = [LibraryQuestion(question.text, question.answers, "all") for question in questions]

    def draw(random_state: random.Random) -> LibraryQuestion:
        return random_state.choice(asked)

    def log(line: Mapping[str, Any]) -> None:
        if task.name == dies_in and line["step"] == DEADLY_STEP:
            os.kill(os.getpid(), signal.SIGKILL)

    task: Task
    for task in (
        ReadingTask(READING, models.generator, models.wording, pools_of(questions), machine=machine),
        RetrievalTask(RETRIEVAL, models, {"all": Library(passages, vectors)}, draw, machine=machine),
        JointTask(JOINT, models, {"all": Library(passages, vectors)}, draw, machine=machine),
    ):
        train_stage(task, state_file=folder / f"{task.name}_state.pt", log=log)
    if rank == 0:
        weights = {"generator": models.generator.state_dict(), "encoder": models.question_encoder.state_dict()}
        save_state(folder / "weights.pt", weights)


def run(folder: Path, count: int, meeting: Path, *, dies_in: str = "", **given: Any) -> int:
    """Train in processes of their own, and return how the first one ended; the others end with it."""
    meeting.mkdir(parents=True)
    fork = multiprocessing.get_context("fork")
    work = partial(train, count=count, folder=folder, meeting=meeting, dies_in=dies_in, **given)
    processes = [fork.Process(target=work, args=(rank,)) for rank in range(count)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(timeout=PATIENCE_S)
        assert process.exitcode is not None, "a process outlives the one that was killed"
    return processes[0].exitcode or 0


@pytest.mark.parametrize("count", [pytest.param(1, marks=[pytest.mark.slow]), 2])
def test_what_was_killed_and_begun_again_has_the_same_weights(
    models: RagModels, questions: list[Question], tmp_path: Path, count: int
) -> None:
    # each process that is forked has models of its own
    given = {"models": models, "questions": questions}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert run(whole, count, tmp_path / "m0", **given) == 0
    assert run(killed, count, tmp_path / "m1", dies_in="reading", **given) == -signal.SIGKILL
    assert not (killed / "retrieval_state.pt").exists()
    assert run(killed, count, tmp_path / "m2", dies_in="retrieval", **given) == -signal.SIGKILL
    assert not (killed / "joint_state.pt").exists()
    assert run(killed, count, tmp_path / "m3", dies_in="joint", **given) == -signal.SIGKILL
    assert not (killed / "weights.pt").exists()
    assert run(killed, count, tmp_path / "m4", **given) == 0
    expected, found = (torch.load(folder / "weights.pt", weights_only=True) for folder in (whole, killed))
    for model, weights in expected.items():
        for name, tensor in weights.items():
            assert torch.equal(found[model][name], tensor), f"{model}: {name}"
