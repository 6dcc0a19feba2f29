"""The whole training on a few questions: a folder that loads and answers, and nothing done twice."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from service.errors import SourceInvalid
from service.offline.evaluation.asked import choose_questions
from service.offline.evaluation.reading import read_paragraphs
from service.offline.index_builder import Silence
from service.offline.training.distillation import DistillationConfig
from service.offline.training.examples import Question
from service.offline.training.joint import JointConfig
from service.offline.training.reading import ReadingConfig
from service.offline.training.run import TrainingConfig, run
from service.rag.checkpoint import load_checkpoint


@pytest.fixture
def config(questions: list[Question], tmp_path: Path) -> TrainingConfig:
    file = tmp_path / "questions.jsonl"
    file.write_text(
        "\n".join(
            json.dumps({"question": q.text, "answers": q.answers, "title": q.title, "context": q.context})
            for q in questions
        )
    )
    return TrainingConfig(
        output=tmp_path / "mine",
        work=tmp_path / "work",
        paragraphs=(file,),
        held_out=("Ecuador",),
        name="mine",
        worlds=0,
        reading=ReadingConfig(steps=2, tokens_per_step=300, examples_per_pool=8, evaluate_every=2),
        distillation=DistillationConfig(steps=1, questions_per_step=2),
        joint=JointConfig(steps=1, questions_per_step=2, n_docs=1),
    )


def test_a_run_writes_a_folder_that_answers_and_a_second_run_goes_on_from_it(config: TrainingConfig) -> None:
    said: list[str] = []
    assert run(config, said.append) == config.output
    checkpoint = load_checkpoint(config.output)
    assert checkpoint.facts.name == "mine"
    log = [json.loads(line) for line in (config.work / "log.jsonl").read_text().splitlines()]
    assert {line["stage"] for line in log} == {"reading", "distillation", "joint"}
    assert all(line["seed"] == config.seed for line in log)

    asked = choose_questions(config.paragraphs, held_out=config.held_out)
    report = read_paragraphs([checkpoint], asked, work=config.work, num_beams=[1], seed=0, progress=Silence())
    assert report.facts["questions"] == 2

    said.clear()
    run(replace(config, output=config.output.with_name("again")), said.append)
    assert sum("done before" in line for line in said) == 3
    assert load_checkpoint(config.output.with_name("again")).fingerprint == checkpoint.fingerprint


def test_two_processes_train_together(config: TrainingConfig) -> None:
    run(replace(config, processes=2), lambda _: None)
    assert load_checkpoint(config.output).facts.name == "mine"


def test_a_missing_file_is_named_before_anything_begins(config: TrainingConfig) -> None:
    with pytest.raises(SourceInvalid, match="nowhere"):
        run(replace(config, sentences=(Path("nowhere.jsonl"),)), lambda _: None)
    assert not (config.work / "reader.pt").exists()
