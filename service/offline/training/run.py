"""The whole training: base -> reading -> distillation -> joint -> a checkpoint folder.

Every stage leaves its result in the work folder; what is there already is not made again, so a run that was
interrupted is begun again with the same call and goes on where it was.
"""

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import DPRQuestionEncoder, PreTrainedModel

from service.offline.training.base import Base, find_base
from service.offline.training.curves import LOG_FILE, can_draw, draw_curves
from service.offline.training.data import check, read_all
from service.offline.training.distillation import distil_question_encoder
from service.offline.training.joint import train_joint
from service.offline.training.libraries import (
    PARAGRAPHS,
    dev_library,
    draw_from,
    library_questions,
    make_libraries,
)
from service.offline.training.loop import Replicas, Report, save_state
from service.offline.training.mixture import Mixture, Source, question_sources
from service.offline.training.parts import train_logits_bias
from service.offline.training.reading import train_reading
from service.offline.training.recipe import HELD_OUT_ARTICLES as HELD_OUT_ARTICLES
from service.offline.training.recipe import TrainingConfig as TrainingConfig
from service.offline.training.recipe import remember
from service.offline.training.replicas import machine_of, run_together
from service.offline.training.retrieval import Library
from service.offline.training.stage import Log, Machine, Progress, no_progress
from service.offline.training.vectors import KeptVectors
from service.offline.training.weights import save_trained
from service.offline.training.world_examples import invented_worlds, world_question_texts, world_sources
from service.rag.passage_encoder import PassageEncoder

READER, QUESTION_ENCODER, JOINT = "reader.pt", "question_encoder.pt", "joint.pt"


def run(config: TrainingConfig, report: Report, progress: Progress = no_progress) -> Path:
    """Train, and return the folder that was written. `report` is told one line at a time how it goes.

    Raises SourceInvalid for what cannot be read, written or trained, before anything long begins; BaseWeightsMissing
    without the passage encoder's package, SettingInvalid for a device that is not here.
    """
    config = config.seeded()
    machine = machine_of(config.device, config.dtype, Replicas())
    questions = check(config)
    base = _base(config)
    remember(config)
    report(f"{len(questions.paragraphs):,} questions over paragraphs, {len(questions.held_out):,} held out")
    report(f"{config.processes} process(es), {machine.device}, {str(machine.dtype).removeprefix('torch.')}")
    if not questions.dev:
        report("no article is held out, so there will be no dev scores: name some with --held-out")
    if not can_draw():
        report("matplotlib is not installed, so there will be no curves.png: pip install 'openbook[plots]'")
    _reading_stage(config, report, progress)
    if not base.brings_question_encoder:
        _distillation_stage(config, base, machine, report, progress)
    _joint_stage(config, report, progress)
    question_encoder, generator = _models(base, config.work / JOINT)
    aside = config.output.with_name(f".{config.output.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    save_trained(
        aside,
        name=config.name,
        question_encoder=question_encoder,
        generator=generator,
        question_tokenizer=base.question_tokenizer(),
        wording=base.wording(generator),
        passage_encoder=PassageEncoder.load(),
        package=base.package,
    )
    aside.replace(config.output)
    report(f"saved {config.output}")
    return config.output


def _reading_stage(config: TrainingConfig, report: Report, progress: Progress) -> None:
    if (config.work / READER).is_file():
        report(f"reading: done before, {config.work / READER} is used")
        return
    report("reading: encoding passages")
    _sources(config)
    log = _log(config, "reading", report)
    run_together(read, (config,), config.processes, log=log, progress=progress)


def _distillation_stage(
    config: TrainingConfig, base: Base, machine: Machine, report: Report, progress: Progress
) -> None:
    if (config.work / QUESTION_ENCODER).is_file():
        report(f"distillation: done before, {config.work / QUESTION_ENCODER} is used")
        return
    report("distillation: the question encoder learns the passage encoder's vectors")
    texts = read_all(config).texts() + world_question_texts(invented_worlds(config.worlds, seed=config.seed))
    torch.manual_seed(config.seed)
    teacher = _vectors(config)
    encoder, _ = base.models(teacher.encoder.dimension)
    distil_question_encoder(
        encoder,
        base.question_tokenizer(),
        list(dict.fromkeys(texts)),
        teacher,
        config.distillation,
        log=_log(config, "distillation", report),
        machine=machine,
        progress=progress,
    )
    save_state(config.work / QUESTION_ENCODER, {"question_encoder": encoder.cpu().state_dict()})


def _joint_stage(config: TrainingConfig, report: Report, progress: Progress) -> None:
    if (config.work / JOINT).is_file():
        report(f"joint: done before, {config.work / JOINT} is used")
        return
    report("joint: encoding passages")
    _libraries(config)
    log = _log(config, "joint", report)
    run_together(join, (config,), config.processes, log=log, progress=progress)


def read(
    config: TrainingConfig, replicas: Replicas, *, log: Log | None = None, progress: Progress = no_progress
) -> None:
    """The reading stage, in one of its processes."""
    batches_per_pool = max(1, config.reading.examples_per_pool // 40)
    mixture = Mixture(_sources(config), seed=config.seed, pools=config.reading.steps // batches_per_pool)
    torch.manual_seed(config.seed)
    base = _base(config)
    _, generator = base.models(PassageEncoder.load().dimension)
    train_reading(
        generator,
        base.wording(generator),
        mixture.pool,
        config.reading,
        state_file=config.work / "reading_state.pt",
        log=log or _silent,
        dev=read_all(config).dev,
        machine=machine_of(config.device, config.dtype, replicas),
        progress=progress,
    )
    if replicas.rank == 0:
        save_state(config.work / READER, {"generator": generator.cpu().state_dict()})


def join(
    config: TrainingConfig, replicas: Replicas, *, log: Log | None = None, progress: Progress = no_progress
) -> None:
    """The joint stage, in one of its processes."""
    questions = read_all(config)
    worlds = invented_worlds(config.worlds, seed=config.seed)
    base = _base(config)
    files = [config.work / READER]
    if not base.brings_question_encoder:
        files.append(config.work / QUESTION_ENCODER)
    question_encoder, generator = _models(base, *files)
    libraries = _libraries(config)
    held_out = libraries.pop(HELD_OUT)
    train_joint(
        question_encoder,
        generator,
        base.question_tokenizer(),
        base.wording(generator),
        libraries,
        draw_from(
            library_questions(questions.paragraphs, worlds, unanswerable=questions.unanswerable, alone=questions.alone),
            world_share=config.world_share,
            office_share=config.office_share,
            paragraph_kinds=config.paragraph_kinds,
        ),
        config.joint,
        state_file=config.work / "joint_state.pt",
        log=log or _silent,
        dev=questions.dev,
        dev_library=held_out,
        machine=machine_of(config.device, config.dtype, replicas),
        progress=progress,
    )
    if replicas.rank == 0:
        states = {
            "generator": generator.cpu().state_dict(),
            "question_encoder": question_encoder.cpu().state_dict(),
        }
        save_state(config.work / JOINT, states)


HELD_OUT = "held out"


def _sources(config: TrainingConfig) -> dict[str, Source]:
    """What reading draws from. Every process makes it; the first to do so leaves the vectors for the others."""
    questions = read_all(config)
    sources, pool = question_sources(
        questions.paragraphs,
        questions.sentences,
        questions.unanswerable,
        encoder=_vectors(config),
        more_pieces=[(passage.title, passage.text) for passage in questions.passages],
    )
    return sources | world_sources(invented_worlds(config.worlds, seed=config.seed), pool=pool)


def _libraries(config: TrainingConfig) -> dict[str, Library]:
    """What joint training searches, likewise, and under HELD_OUT what the dev questions are asked of."""
    questions = read_all(config)
    encoder = _vectors(config)
    libraries = make_libraries(
        questions.paragraphs,
        invented_worlds(config.worlds, seed=config.seed),
        encoder=encoder,
        more_passages=questions.passages,
    )
    return libraries | {HELD_OUT: dev_library(libraries[PARAGRAPHS], questions.held_out, encoder=encoder)}


def _vectors(config: TrainingConfig) -> KeptVectors:
    machine = machine_of(config.device, config.dtype, Replicas())
    return KeptVectors(config.work, device=machine.device, dtype=machine.dtype)


def _base(config: TrainingConfig) -> Base:
    return find_base(config.base, passage_encoder=PassageEncoder.load(), decoder_layers=config.decoder_layers)


def _models(base: Base, *files: Path) -> tuple[DPRQuestionEncoder, PreTrainedModel]:
    """Both models with the weights that these files hold."""
    states: dict[str, Any] = {}
    for file in files:
        states |= torch.load(file, weights_only=True)
    question_encoder, generator = base.models(PassageEncoder.load().dimension)
    if "question_encoder" in states:
        question_encoder.load_state_dict(states["question_encoder"])
    train_logits_bias(generator)
    generator.load_state_dict(states["generator"])
    return question_encoder, generator


def _log(config: TrainingConfig, stage: str, report: Report) -> Log:
    """A run log of one JSON line each, with the stage, the seed and the time; a line for whoever waits; and the
    curves anew where there are dev scores, and at the end of a stage."""

    def log(line: Mapping[str, Any]) -> None:
        entry = {"stage": stage, "seed": config.seed, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), **line}
        with (config.work / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in line.items() if isinstance(value, int | float))
        report(f"{stage}: {numbers}")
        last = line.get("step") in (config.reading.steps if stage == "reading" else config.joint.steps, None)
        if can_draw() and (last or "dev_exact_match" in line):
            draw_curves(config.work)

    return log


def _silent(_line: Mapping[str, Any]) -> None:
    return None
