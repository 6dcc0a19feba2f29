"""The whole training: base -> reading -> distillation -> joint -> a checkpoint folder.

Every stage leaves its result in the work folder; what is there already is not made again, so a run that was
interrupted is begun again with the same call and goes on where it was.
"""

import json
import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers.utils import logging

from openbook.errors import SettingInvalid
from openbook_lab.training.checks import check_folders, check_questions
from openbook_lab.training.curves import LOG_FILE, can_draw, draw_curves
from openbook_lab.training.distillation import distil_question_encoder
from openbook_lab.training.examples import Question
from openbook_lab.training.joint import train_joint
from openbook_lab.training.loop import Replicas, Report, save_state
from openbook_lab.training.reading import train_reading
from openbook_lab.training.recipe import TrainingConfig as TrainingConfig
from openbook_lab.training.recipe import remember
from openbook_lab.training.replicas import gathered, meet
from openbook_lab.training.stage import Log, Progress, no_progress
from openbook_lab.training.weights import save_trained
from openbook_lab.training.workshop import Workshop

READER, QUESTION_ENCODER, JOINT = "reader.pt", "question_encoder.pt", "joint.pt"


def run(config: TrainingConfig, report: Report, progress: Progress = no_progress) -> Path:
    """Train, and return the folder that was written. `report` is told one line at a time how it goes.

    Raises SourceInvalid for what cannot be read, written or trained, before anything long begins; BaseWeightsMissing
    without the passage encoder's package, SettingInvalid for a number or a device that cannot be.
    """
    config = config.seeded()
    check_folders(config)
    workshop = Workshop(config, Replicas(), progress)
    check_questions(config, workshop.questions)
    if not results_of(workshop):
        raise SettingInvalid(setting="--joint-steps", reason="no stage has a step, so there is nothing to train")
    remember(config)
    questions, machine = workshop.questions, workshop.machine
    report(f"{len(questions.paragraphs):,} questions over paragraphs, {len(questions.held_out):,} held out")
    pairs = {"questions alone": questions.alone, "texts to write": questions.prompts, "claims": questions.claims}
    for what, given in pairs.items():
        if given:
            report(f"{len(given):,} {what}")
    report(f"{config.processes} process(es), {machine.device}, {str(machine.dtype).removeprefix('torch.')}")
    if not questions.dev:
        report(
            "nothing is held out, so there will be no dev scores: name a file with --dev, an article with --held-out"
        )
    if questions.left_out:
        report(f"{questions.left_out:,} are longer than {workshop.longest_question} tokens, and are left out")
    if workshop.base.kind == "encoder" and not config.reading.steps:
        report(f"{workshop.base.folder.name} cannot write yet, and reading is left out: begin with a BART, T5 or RAG")
    if not can_draw():
        report("matplotlib is not installed, so there will be no curves.png: pip install 'openbook[plots]'")
    stages = {
        "reading": (READER, _reading),
        "distillation": (QUESTION_ENCODER, _distillation),
        "joint": (JOINT, _joint),
    }
    for stage, (result, work) in stages.items():
        if result not in results_of(workshop):
            report(f"{stage}: left out")
            continue
        if (config.work / result).is_file():
            report(f"{stage}: done before, {config.work / result} is used")
            continue
        report(f"{stage}: begins")
        work(workshop, _log(config, stage, report), progress)
    question_encoder, generator = workshop.models(*(config.work / file for file in results_of(workshop)))
    aside = config.output.with_name(f".{config.output.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    save_trained(
        aside,
        name=config.name,
        question_encoder=question_encoder,
        generator=generator,
        question_tokenizer=workshop.base.question_tokenizer(),
        wording=workshop.base.wording(generator),
        passage_encoder=workshop.passage_encoder,
        package=workshop.base.package,
    )
    aside.replace(config.output)
    report(f"saved {config.output}")
    return config.output


def results_of(workshop: Workshop) -> list[str]:
    """What the stages of this training leave in the work folder, in their order. A stage of no steps is left out."""
    config = workshop.config
    learns_questions = config.distillation.steps and not workshop.base.brings_question_encoder
    made = {READER: config.reading.steps, QUESTION_ENCODER: learns_questions, JOINT: config.joint.steps}
    return [file for file, steps in made.items() if steps]


def _reading(workshop: Workshop, log: Log, progress: Progress) -> None:
    # the first process alone encodes the passages; the others find their vectors in the work folder
    _ = workshop.sources
    with gathered(partial(_other, read, workshop.config), workshop.config.processes) as replicas:
        read(workshop.among(replicas), log=log, progress=progress)


def _distillation(workshop: Workshop, log: Log, progress: Progress) -> None:
    encoder, _ = workshop.models()
    distil_question_encoder(
        encoder,
        workshop.base.question_tokenizer(),
        workshop.question_texts(),
        workshop.vectors,
        workshop.config.distillation,
        log=log,
        machine=workshop.machine,
        progress=progress,
    )
    save_state(workshop.config.work / QUESTION_ENCODER, {"question_encoder": encoder.cpu().state_dict()})


def _joint(workshop: Workshop, log: Log, progress: Progress) -> None:
    workshop.dev_library()
    with gathered(partial(_other, join, workshop.config), workshop.config.processes) as replicas:
        join(workshop.among(replicas), log=log, progress=progress)


class Work(Protocol):
    """A stage as each of its processes runs it."""

    def __call__(self, workshop: Workshop, *, log: Log, progress: Progress) -> None: ...


def _other(work: Work, config: TrainingConfig, rank: int, folder: str) -> None:
    """What a process does that is not the first."""
    # what the first process says is said once
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    replicas = meet(folder, rank, config.processes)
    work(Workshop(config, replicas), log=_silent, progress=no_progress)
    torch.distributed.destroy_process_group()


def _silent(_line: Mapping[str, Any]) -> None:
    return None


def read(workshop: Workshop, *, log: Log, progress: Progress) -> None:
    """The reading stage, in one of its processes."""
    config = workshop.config
    _, generator = workshop.models()
    wording, dev = workshop.base.wording(generator), workshop.questions.dev
    if config.closed_book:
        wording, dev = wording.without_passages(), [Question(q.text, q.answers) for q in dev]
    else:
        dev = [question for question in dev if question.context]
    train_reading(
        generator,
        wording,
        workshop.mixture().pool,
        config.reading,
        state_file=config.work / "reading_state.pt",
        log=log,
        dev=dev,
        machine=workshop.machine,
        progress=progress,
    )
    if workshop.replicas.rank == 0:
        save_state(config.work / READER, {"generator": generator.cpu().state_dict()})


def join(workshop: Workshop, *, log: Log, progress: Progress) -> None:
    """The joint stage, in one of its processes."""
    config, base = workshop.config, workshop.base
    before = (config.work / file for file in results_of(workshop) if file != JOINT)
    question_encoder, generator = workshop.models(*before)
    train_joint(
        question_encoder,
        generator,
        base.question_tokenizer(),
        base.wording(generator),
        workshop.libraries,
        workshop.draw(),
        config.joint,
        state_file=config.work / "joint_state.pt",
        log=log,
        dev=workshop.questions.dev,
        dev_library=workshop.dev_library(),
        machine=workshop.machine,
        progress=progress,
    )
    if workshop.replicas.rank == 0:
        states = {
            "generator": generator.cpu().state_dict(),
            "question_encoder": question_encoder.cpu().state_dict(),
        }
        save_state(config.work / JOINT, states)


def _log(config: TrainingConfig, stage: str, report: Report) -> Log:
    """A run log of one JSON line each, with the stage, the seed and the time; a line for whoever waits; and the
    curves anew where there are dev scores, and at the end of a stage."""

    def log(line: Mapping[str, Any]) -> None:
        entry = {"stage": stage, "seed": config.seed, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), **line}
        with (config.work / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in line.items() if isinstance(value, int | float))
        report(f"{stage}: {numbers}")
        last = line.get("step") == (config.reading if stage == "reading" else config.joint).steps
        if can_draw() and (last or "dev_exact_match" in line):
            draw_curves(config.work)

    return log
