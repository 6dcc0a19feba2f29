"""The whole training: base -> reading -> distillation -> joint -> a checkpoint folder.

Every stage leaves its result in the work folder, and is left out where the result is there. So the same call resumes an
interrupted run.
"""

import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from openbook.errors import SettingInvalid
from openbook_lab.datasets.questions import Question
from openbook_lab.training import run_log
from openbook_lab.training.base import Base, RagModels, find_base
from openbook_lab.training.data import Questions, check_questions, read_all
from openbook_lab.training.distillation import distil_question_encoder
from openbook_lab.training.examples import AnswerPool
from openbook_lab.training.joint import JointTask
from openbook_lab.training.libraries import (
    PARAGRAPHS,
    Draw,
    Library,
    draw_from,
    library_questions,
    make_dev_library,
    make_libraries,
)
from openbook_lab.training.machine import ALONE, Replicas, gathered, machine_of, meet
from openbook_lab.training.mixture import Mixture, Source, closed_book_source, question_sources, world_sources
from openbook_lab.training.optimizer import train_logits_bias
from openbook_lab.training.reading import ReadingTask
from openbook_lab.training.recipe import TrainingConfig as TrainingConfig
from openbook_lab.training.recipe import check_recipe, remember
from openbook_lab.training.stage import Log, Progress, load_state, no_progress, save_state, train_stage
from openbook_lab.training.vectors import KeptVectors
from openbook_lab.training.weights import save_trained
from openbook_lab.training.worlds import InventedWorld, invented_worlds

Report = Callable[[str], None]

# stage -> its result in the work folder, and the models whose weights this holds
RESULTS = {
    "reading": ("reader.pt", ("generator",)),
    "distillation": ("question_encoder.pt", ("question_encoder",)),
    "joint": ("joint.pt", ("generator", "question_encoder")),
}


def run(config: TrainingConfig, report: Report, progress: Progress = no_progress) -> Path:
    """Train, and return the folder that was written. `report` receives one line at a time.

    Raises SourceInvalid for what cannot be read, written or trained, before anything long begins; BaseWeightsMissing
    without the passage encoder's package, SettingInvalid for a number or a device that cannot be.
    """
    config = config.seeded()
    check_recipe(config)
    training = Training(config, progress=progress)
    check_questions(config, training.questions)
    if not training.stages:
        raise SettingInvalid(setting="--joint-steps", reason="no stage has a step, so there is nothing to train")
    remember(config)
    for line in training.description():
        report(line)
    for stage in RESULTS:
        result = training.result(stage)
        if stage not in training.stages:
            report(f"{stage}: left out")
        elif result.is_file():
            report(f"{stage}: done before, {result} is used")
        else:
            report(f"{stage}: begins")
            training.train(stage, log=_log(config, stage, report), progress=progress)
    aside = config.output.with_name(f".{config.output.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    models = training.models(*training.stages)
    save_trained(aside, models, name=config.name, passage_encoder=training.vectors.encoder)
    aside.replace(config.output)
    report(f"saved {config.output}")
    return config.output


def _log(config: TrainingConfig, stage: str, report: Report) -> Log:
    """Adds each line to the run log and reports it; draws the curves at dev scores and at the end of the stage."""

    def log(line: Mapping[str, Any]) -> None:
        run_log.append(config.work, stage, config.seed, line)
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in line.items() if isinstance(value, int | float))
        report(f"{stage}: {numbers}")
        if "dev_exact_match" in line or line["step"] == getattr(config, stage).steps:
            run_log.draw_curves(config.work)

    return log


class Training:
    """One training in one of its processes. Its parts follow from the recipe, and are made when first needed."""

    def __init__(self, config: TrainingConfig, replicas: Replicas = ALONE, progress: Progress = no_progress) -> None:
        self.config = config
        self.machine = machine_of(config.device, config.dtype, replicas)
        device, dtype = self.machine.device, self.machine.dtype
        self.vectors = KeptVectors(config.work, device=device, dtype=dtype, progress=progress)

    @property
    def stages(self) -> list[str]:
        """The stages that have steps, in their order. Distillation is for a base without a question encoder."""
        return [
            stage
            for stage in RESULTS
            if getattr(self.config, stage).steps and (stage != "distillation" or self.base.kind != "checkpoint")
        ]

    def result(self, stage: str) -> Path:
        return self.config.work / RESULTS[stage][0]

    def description(self) -> list[str]:
        """What the user should know before the first stage."""
        config, questions, base = self.config, self.questions, self.base
        lines = [f"{len(questions.paragraphs):,} questions over paragraphs, {len(questions.held_out):,} held out"]
        pairs = {"questions alone": questions.alone, "texts to write": questions.prompts, "claims": questions.claims}
        lines += [f"{len(given):,} {what}" for what, given in pairs.items() if given]
        dtype = str(self.machine.dtype).removeprefix("torch.")
        lines.append(f"{config.processes} process(es), {self.machine.device}, {dtype}")
        if not questions.dev:
            lines.append(
                "nothing is held out, so there will be no dev scores: name a file with --dev, an article with "
                "--held-out"
            )
        if questions.left_out:
            lines.append(f"{questions.left_out:,} are longer than {self.longest_question} tokens, and are left out")
        if base.kind == "encoder" and not config.reading.steps:
            lines.append(f"{base.folder.name} cannot write yet, and reading is left out: begin with a BART, T5 or RAG")
        return lines

    @cached_property
    def base(self) -> Base:
        return find_base(
            self.config.base, passage_encoder=self.vectors.encoder, decoder_layers=self.config.decoder_layers
        )

    @cached_property
    def questions(self) -> Questions:
        """All questions but those that are too long."""
        tokenizer = self.base.generator_tokenizer()

        def too_long(texts: Sequence[str]) -> list[bool]:
            read = tokenizer(list(texts), verbose=False)["input_ids"] if texts else []
            return [len(ids) > self.longest_question for ids in read]

        return read_all(self.config).without(too_long)

    @property
    def longest_question(self) -> int:
        """In tokens: half of the generator's input, so that there is room for a passage; in a closed book all of it."""
        read = min(self.config.reading.max_input_length, self.config.joint.max_input_length)
        read = min(read, self.base.positions or read)
        return read if self.config.closed_book else read // 2

    @cached_property
    def worlds(self) -> list[InventedWorld]:
        return invented_worlds(self.config.worlds, seed=self.config.seed)

    @cached_property
    def sources(self) -> Mapping[str, Source]:
        """What reading draws from."""
        questions = self.questions
        if self.config.closed_book:
            return {"pair": closed_book_source(questions.pairs())}
        pool = AnswerPool.of([*questions.paragraphs, *questions.sentences])
        return question_sources(questions, pool=pool, encoder=self.vectors) | world_sources(self.worlds, pool=pool)

    @cached_property
    def libraries(self) -> Mapping[str, Library]:
        """What joint training searches."""
        return make_libraries(self.questions, self.worlds, encoder=self.vectors)

    @cached_property
    def dev_library(self) -> Library:
        """What joint training searches for the dev questions."""
        return make_dev_library(self.libraries[PARAGRAPHS], self.questions, encoder=self.vectors)

    def draw(self) -> Draw:
        """What joint training asks."""
        config = self.config
        return draw_from(
            library_questions(self.questions, self.worlds, unfound=config.unfound),
            world_share=config.joint.world_share,
            office_share=config.joint.office_share,
            # without paragraphs, each pair comes as often as another
            paragraph_kinds=config.paragraph_kinds if self.questions.paragraphs else None,
        )

    def models(self, *stages: str) -> RagModels:
        """The base's models, with the weights that these stages have trained."""
        torch.manual_seed(self.config.seed)
        models = self.base.models(self.vectors.encoder.dimension)
        states: dict[str, Any] = {}
        for stage in stages:
            states |= load_state(self.result(stage)) or {}
        if "question_encoder" in states:
            models.question_encoder.load_state_dict(states["question_encoder"])
        if "generator" in states:
            train_logits_bias(models.generator)
            models.generator.load_state_dict(states["generator"])
        return models

    def train(self, stage: str, *, log: Log, progress: Progress) -> None:
        """Train a stage in as many processes as the recipe says, and save its result."""
        if stage == "distillation":
            self.train_here(stage, log=log, progress=progress)
            return
        # the first process alone encodes the passages; the others find their vectors in the work folder
        _ = self.sources if stage == "reading" else self.dev_library
        with gathered(partial(_train_beside, stage, self.config), self.config.processes) as replicas:
            first = copy(self)
            first.machine = machine_of(self.config.device, self.config.dtype, replicas)
            first.train_here(stage, log=log, progress=progress)

    def train_here(self, stage: str, *, log: Log, progress: Progress) -> None:
        """Train a stage in this process; the first process saves the result."""
        models = self.models(*(before for before in self.stages if stage == "joint" and before != "joint"))
        if stage == "distillation":
            self._distil(models, log, progress)
        else:
            task = self._reading(models) if stage == "reading" else self._joint(models)
            train_stage(task, state_file=self.config.work / f"{stage}_state.pt", log=log, progress=progress)
        if self.machine.replicas.rank == 0:
            trained = {name: getattr(models, name).cpu().state_dict() for name in RESULTS[stage][1]}
            save_state(self.result(stage), trained)

    def _reading(self, models: RagModels) -> ReadingTask:
        config, wording, dev = self.config, models.wording, self.questions.dev
        if config.closed_book:
            wording, dev = wording.without_passages(), [Question(q.text, q.answers) for q in dev]
        else:
            dev = [question for question in dev if question.context]
        batches_per_pool = max(1, config.reading.examples_per_pool // 40)
        mixture = Mixture(self.sources, seed=config.seed, pools=config.reading.steps // batches_per_pool)
        return ReadingTask(models.generator, wording, mixture.pool, config.reading, self.machine, dev)

    def _distil(self, models: RagModels, log: Log, progress: Progress) -> None:
        of_worlds = (question.text for world in self.worlds for question in world.questions)
        distil_question_encoder(
            models.question_encoder,
            models.question_tokenizer,
            list(dict.fromkeys([*self.questions.texts(), *of_worlds])),
            self.vectors,
            self.config.distillation,
            log=log,
            machine=self.machine,
            progress=progress,
        )

    def _joint(self, models: RagModels) -> JointTask:
        return JointTask(
            models,
            self.libraries,
            self.draw(),
            self.config.joint,
            self.machine,
            self.questions.dev,
            self.dev_library,
        )


def _train_beside(stage: str, config: TrainingConfig, rank: int, folder: str) -> None:
    """Train a stage in a process that is not the first, in silence."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    training = Training(config, meet(folder, rank, config.processes))
    training.train_here(stage, log=lambda _: None, progress=no_progress)
    torch.distributed.destroy_process_group()
