"""The whole training on a few questions: a folder that loads and answers, and nothing done twice."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.rag.checkpoint import load_checkpoint
from openbook.settings import Settings
from openbook_lab.datasets.questions import Question
from openbook_lab.evaluation.options import Options
from openbook_lab.evaluation.reading import read_paragraphs
from openbook_lab.training.data import read_all
from openbook_lab.training.recipe import (
    DistillationConfig,
    JointConfig,
    ReadingConfig,
    RetrievalConfig,
    remember,
    with_numbers,
)
from openbook_lab.training.run import TrainingConfig
from tests.openbook_lab.training.files import lines, logged, refused, said_by


def config_in(folder: Path, base: Path, questions: list[Question]) -> TrainingConfig:
    return TrainingConfig(
        output=folder / "mine",
        work=folder / "work",
        base=base,
        paragraphs=(lines(folder / "questions.jsonl", questions),),
        held_out=("Ecuador",),
        name="mine",
        worlds=0,
        reading=ReadingConfig(steps=2, tokens_per_step=300, examples_per_pool=8, evaluate_every=2),
        distillation=DistillationConfig(steps=1, questions_per_step=2),
        joint=JointConfig(steps=1, questions_per_step=2, n_docs=1),
    )


@pytest.fixture
def config(tmp_path: Path, bert_folder: Path, questions: list[Question]) -> TrainingConfig:
    return config_in(tmp_path, bert_folder, questions)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, bert_folder: Path, questions: list[Question]) -> TrainingConfig:
    """A training of all stages that has ended."""
    config = config_in(tmp_path_factory.mktemp("finished"), bert_folder, questions)
    assert sum(line.endswith(": begins") for line in said_by(config)) == 3
    return config


def test_a_run_writes_a_folder_that_answers(finished: TrainingConfig) -> None:
    checkpoint = load_checkpoint(finished.output)
    assert (checkpoint.facts.name, checkpoint.facts.base) == ("mine", None)
    assert checkpoint.question_encoder.config.projection_dim == PassageEncoder.load().dimension
    for stage in ("reading", "distillation", "joint"):
        assert {line["seed"] for line in logged(finished, stage)} == {finished.seed}
    options = Options(questions=finished.paragraphs, held_out=finished.held_out, work=finished.work)
    report = read_paragraphs(Settings(checkpoint=str(finished.output), dtype="float32"), options)
    assert report.facts["questions"] == 2


def test_a_second_run_goes_on_from_the_results_of_the_first(finished: TrainingConfig, tmp_path: Path) -> None:
    again = replace(finished, output=tmp_path / "again")
    assert sum("done before" in line for line in said_by(again)) == 3
    assert load_checkpoint(again.output).fingerprint == load_checkpoint(finished.output).fingerprint


@pytest.mark.slow
def test_two_processes_train_together_and_a_stage_of_no_steps_is_left_out(config: TrainingConfig) -> None:
    no_joint, no_distillation = replace(config.joint, steps=0), replace(config.distillation, steps=0)
    said = said_by(replace(config, processes=2, joint=no_joint, distillation=no_distillation))
    assert {"distillation: left out", "joint: left out"} <= set(said)
    assert load_checkpoint(config.output).facts.name == "mine"


def test_what_no_stage_trains_stays_the_bases(finished: TrainingConfig, tmp_path: Path) -> None:
    reading = replace(finished.reading, steps=0)
    further = replace(finished, base=finished.output, output=tmp_path / "on", work=tmp_path / "work", reading=reading)
    assert {"reading: left out", "distillation: left out"} <= set(said_by(further))
    first, second = load_checkpoint(finished.output), load_checkpoint(further.output)
    assert second.fingerprint != first.fingerprint
    # one step of joint training has moved the generator, and nothing else has
    before, after = first.generator.state_dict(), second.generator.state_dict()
    moved = max(float((before[name] - after[name]).abs().max()) for name in before)
    assert 0 < moved < 2 * further.joint.decoder_rate


def test_learning_to_retrieve_moves_the_question_encoder_alone(finished: TrainingConfig, tmp_path: Path) -> None:
    further = replace(
        finished,
        base=finished.output,
        output=tmp_path / "on",
        work=tmp_path / "work",
        reading=replace(finished.reading, steps=0),
        retrieval=RetrievalConfig(steps=1, questions_per_step=2, warm_up=1),
        joint=replace(finished.joint, steps=0),
    )
    assert {"reading: left out", "retrieval: begins", "joint: left out"} <= set(said_by(further))
    (line, dev) = logged(further, "retrieval")
    assert (line["learnt"], dev["questions"]) == (1.0, 2)
    first, second = load_checkpoint(finished.output), load_checkpoint(further.output)
    before, after = first.question_encoder.state_dict(), second.question_encoder.state_dict()
    assert any((before[name] != after[name]).any() for name in before)
    for name, tensor in first.generator.state_dict().items():
        assert torch.equal(second.generator.state_dict()[name], tensor), name


def test_what_cannot_end_well_does_not_begin(config: TrainingConfig, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").touch()
    nq = tmp_path / "nq.jsonl"
    nq.write_text('{"question": "who was it", "answer": ["Ana"]}')
    refused(replace(config, sentences=(Path("nowhere.jsonl"),)), "nowhere.jsonl: there is no such file")
    refused(replace(config, output=taken), "taken: is there already and is not empty")
    refused(replace(config, work=taken / "file"), "file: cannot be written to")
    refused(replace(config, teacher="openbook-mini"), "--teacher: it teaches span readers alone")
    refused(replace(config, held_out=("Atlantis",)), "held-out: no question over a paragraph is about 'Atlantis'")
    refused(replace(config, sentences=(nq,)), "'who was it' has no context, as sentences need")
    refused(replace(config, joint=replace(config.joint, questions_per_step=4)), "3 questions with answers are left")
    refused(replace(config, joint=replace(config.joint, n_docs=2)), "n-docs: 2 passages a question, and 1 are there")
    refused(replace(config, reading=replace(config.reading, dropout=1.0)), r"reading\.dropout: 1\.0 cannot be")
    retrieval = RetrievalConfig(steps=1, freeze=("question-encoder",))
    refused(replace(config, retrieval=retrieval), "with a frozen question encoder retrieval has nothing to learn")
    refused(replace(config, device="abacus"), "'abacus' is none of auto, cpu, cuda")
    refused(replace(config, processes=0), "0 processes cannot train")
    nothing_held_out = replace(config, held_out=(), reading=replace(config.reading, patience=1))
    refused(nothing_held_out, "stopping early in reading needs held-out questions with their paragraphs")


def test_a_work_folder_holds_one_recipe(config: TrainingConfig, tmp_path: Path) -> None:
    config.work.mkdir()
    remember(config)
    remember(replace(config, output=tmp_path / "elsewhere", name="other"))
    copied = tmp_path / "copied.jsonl"
    copied.write_bytes(config.paragraphs[0].read_bytes())
    remember(replace(config, paragraphs=(copied,)))
    with pytest.raises(SourceInvalid, match=r"joint\.n_docs was 1, is 3; seed was 0, is 4\. Choose another --work"):
        remember(replace(config, seed=4, joint=replace(config.joint, n_docs=3)))
    copied.write_text("")
    with pytest.raises(SourceInvalid, match="paragraphs differs"):
        remember(replace(config, paragraphs=(copied,)))


def test_a_work_folder_holds_one_base_down_to_its_weights(config: TrainingConfig, tmp_path: Path) -> None:
    assert config.base is not None
    base = shutil.copytree(config.base, tmp_path / "base")
    config.work.mkdir()
    remember(replace(config, base=base))
    remember(config)
    weights = base / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    with pytest.raises(SourceInvalid, match=r"base was .*, is "):
        remember(replace(config, base=base))


def test_states_that_nobody_knows_the_recipe_of_are_not_gone_on_from(config: TrainingConfig) -> None:
    config.work.mkdir()
    (config.work / "reading_state.pt").touch()
    with pytest.raises(SourceInvalid, match=r"without a recipe\.json"):
        remember(config)


def test_numbers_of_the_recipe_are_set_by_their_names(config: TrainingConfig) -> None:
    changed = with_numbers(config, ["joint.question_rate=1e-5", "reading.steps=7"])
    assert (changed.joint.question_rate, changed.reading.steps) == (1e-5, 7)
    for given, reason in (
        ("joint.rate=1", "joint has no number 'rate', but steps, warm_up"),
        ("reading.steps=1.5", "reading.steps is a whole number, not '1.5'"),
        ("steps=3", "'steps=3' is not STAGE.NAME=VALUE"),
        ("joint.seed=3", "joint has no number 'seed'"),
    ):
        with pytest.raises(SettingInvalid, match=reason):
            with_numbers(config, [given])


def test_unanswerable_questions_among_the_paragraphs_are_told_apart(config: TrainingConfig) -> None:
    with config.paragraphs[0].open("a") as file:
        file.write('\n{"question": "Who sank it?", "answers": [], "title": "Peru", "context": "Lima is in Peru."}')
    questions = read_all(config)
    assert [question.text for question in questions.unanswerable] == ["Who sank it?"]
    assert len(questions.paragraphs) == 3
    assert len(questions.held_out) == len(questions.dev) == 2
