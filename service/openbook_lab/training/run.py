"""The whole training: base -> reading -> distillation -> retrieval -> joint -> a checkpoint folder.

Every stage leaves its result in the work folder, and is left out where the result is there. So the same call resumes an
interrupted run.
"""

import json
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from openbook.errors import SettingInvalid
from openbook_lab.datasets.questions import Question
from openbook_lab.training.base import Base, find_base, kind_of
from openbook_lab.training.data import Questions, check_questions, read_all
from openbook_lab.training.distillation import distil_question_encoder
from openbook_lab.training.examples import AnswerPool
from openbook_lab.training.joint import JointTask
from openbook_lab.training.libraries import Draw, Library, draw_from, library_questions, make_libraries
from openbook_lab.training.machine import Machine, gathered, meet
from openbook_lab.training.mixture import Mixture, Source, closed_book_source, question_sources, world_sources
from openbook_lab.training.models import RagModels
from openbook_lab.training.optimizer import train_logits_bias
from openbook_lab.training.reading import ReadingTask
from openbook_lab.training.recipe import TrainingConfig as TrainingConfig
from openbook_lab.training.recipe import check_recipe, remember
from openbook_lab.training.retrieval import RetrievalTask, retrieval_questions
from openbook_lab.training.stage import Progress, Task, load_state, no_progress, save_state, train_stage
from openbook_lab.training.vectors import KeptVectors
from openbook_lab.training.weights import alone_scores, save_trained
from openbook_lab.training.worlds import InventedWorld, invented_worlds

Report = Callable[[str], None]

LOG_FILE = "log.jsonl"

# stage -> its result in the work folder, and the models whose weights this holds
RESULTS = {
    "reading": ("reader.pt", ("generator",)),
    "distillation": ("question_encoder.pt", ("question_encoder",)),
    "retrieval": ("retrieval.pt", ("question_encoder",)),
    "joint": ("joint.pt", ("generator", "question_encoder")),
}


def run(config: TrainingConfig, report: Report, progress: Progress = no_progress) -> Path:
    """Train, and return the folder that was written. `report` receives one line at a time.

    Raises SourceInvalid for what cannot be read, written or trained, before anything long begins; CheckpointInvalid
    without the passage encoder's package, SettingInvalid for a number or a device that cannot be.
    """
    config = config.seeded()
    check_recipe(config)
    training = training_of(config, report=report, progress=progress)
    training.base.check(config)
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
            training.train(stage)
    aside = config.output.with_name(f".{config.output.name}.tmp")
    shutil.rmtree(aside, ignore_errors=True)
    training.save(aside)
    aside.replace(config.output)
    report(f"saved {config.output}")
    return config.output


def silent(_: str) -> None:
    """Report nothing."""


@dataclass
class Training:
    """One training in one of its processes. Its parts follow from the recipe, and are made when first needed."""

    config: TrainingConfig
    rank: int = 0
    report: Report = silent
    progress: Progress = no_progress

    @cached_property
    def machine(self) -> Machine:
        config = self.config
        return Machine.of(config.device, config.dtype, rank=self.rank, count=config.processes)

    @cached_property
    def vectors(self) -> KeptVectors:
        return KeptVectors(self.config.work, str(self.machine.device), self.machine.dtype, self.progress)

    @property
    def stages(self) -> list[str]:
        """The stages that have steps, in their order. Distillation is for a base without a question encoder."""
        left_out = "distillation" if self.base.has_question_encoder else None
        return [stage for stage in RESULTS if getattr(self.config, stage).steps and stage != left_out]

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
        config = self.config
        return find_base(config.base, passage_encoder=self.vectors.encoder, decoder_layers=config.decoder_layers)

    @cached_property
    def questions(self) -> Questions:
        return read_all(self.config).without_longer(self.longest_question, self.base.generator_tokenizer())

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
        """The sources of reading's examples."""
        questions = self.questions
        if self.config.closed_book:
            return {"pair": closed_book_source(questions.pairs())}
        pool = AnswerPool.of([*questions.paragraphs, *questions.sentences])
        return question_sources(questions, pool, self.vectors) | world_sources(self.worlds, pool)

    @cached_property
    def libraries(self) -> Mapping[str, Library]:
        """The libraries that retrieval and joint training search."""
        return make_libraries(
            self.questions,
            self.worlds,
            encoder=self.vectors,
            device=self.machine.device,
            bm25=self.base.prior.bm25 > 0 or (self.config.retrieval.steps > 0 and self.config.retrieval.bm25 > 0),
        )

    def draw(self) -> Draw:
        """How joint training draws its questions."""
        config = self.config
        return draw_from(
            library_questions(self.questions, self.worlds, unfound=config.unfound),
            world_share=config.joint.world_share,
            office_share=config.joint.office_share,
            # without paragraphs all pairs are equally likely
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

    def save(self, folder: Path) -> None:
        """Write the checkpoint; it may move from `folder` to the recipe's `output`."""
        save_trained(folder, self.models(*self.stages), name=self.config.name, passage_encoder=self.vectors.encoder)

    def train(self, stage: str) -> None:
        """Train a stage in as many processes as the recipe says, and save its result."""
        if stage == "distillation":
            self.train_here(stage)
            return
        self.prepare(stage)
        with gathered(partial(_train_beside, stage, self.config), self.config.processes):
            self.train_here(stage)

    def prepare(self, stage: str) -> None:
        """Encode the passages once, in the first process; the others find their vectors in the work folder."""
        _ = self.sources if stage == "reading" else self.libraries

    def train_here(self, stage: str) -> None:
        """Train a stage in this process; the first process saves the result."""
        before = self.stages[: self.stages.index(stage)] if stage in ("retrieval", "joint") else ()
        models = self.models(*before)
        log = partial(self._log, stage)
        if stage == "distillation":
            distil_question_encoder(
                models.question_encoder,
                models.question_tokenizer,
                list(dict.fromkeys([*self.questions.texts(), *(q.text for w in self.worlds for q in w.questions)])),
                self.vectors,
                self.config.distillation,
                log=log,
                machine=self.machine,
                progress=self.progress,
            )
        else:
            make = {"reading": self._reading, "retrieval": self._retrieval, "joint": self._joint}
            task: Task = make[stage](models)
            train_stage(task, state_file=self.config.work / f"{stage}_state.pt", log=log, progress=self.progress)
        if self.rank == 0:
            save_state(
                self.result(stage), {name: getattr(models, name).cpu().state_dict() for name in RESULTS[stage][1]}
            )

    def _log(self, stage: str, line: Mapping[str, Any]) -> None:
        """Add a line to the run log and report it."""
        entry = {"stage": stage, "seed": self.config.seed, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), **line}
        with (self.config.work / LOG_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in line.items() if isinstance(value, int | float))
        self.report(f"{stage}: {numbers}")

    def _reading(self, models: RagModels) -> ReadingTask:
        config, dev = self.config, self.questions.dev
        if config.closed_book:
            models = replace(models, wording=models.wording.without_passages())
            dev = [Question(q.text, q.answers) for q in dev]
        else:
            dev = [question for question in dev if question.context]
        batches_per_pool = max(1, config.reading.examples_per_pool // 40)
        mixture = Mixture(self.sources, seed=config.seed, pools=config.reading.steps // batches_per_pool)
        judge = partial(alone_scores, models)
        return ReadingTask(
            config.reading, models.generator, models.wording, mixture.pool, judge, machine=self.machine, dev=dev
        )

    def _retrieval(self, models: RagModels) -> RetrievalTask:
        config = self.config.retrieval
        draw = draw_from(
            retrieval_questions(self.questions, self.worlds),
            world_share=config.world_share,
            office_share=config.office_share,
        )
        return RetrievalTask(config, models, self.libraries, draw, machine=self.machine, dev=self.questions.dev)

    def _joint(self, models: RagModels) -> JointTask:
        dev = self.questions.dev
        return JointTask(self.config.joint, models, self.libraries, self.draw(), machine=self.machine, dev=dev)


def is_reader(config: TrainingConfig) -> bool:
    """Whether a span reader is trained."""
    return config.question_encoder is not None or kind_of(config.base) == "reader"


def training_of(
    config: TrainingConfig, rank: int = 0, report: Report = silent, progress: Progress = no_progress
) -> Training:
    """The training of this recipe."""
    from openbook_lab.training.reader import ReaderTraining

    kind = ReaderTraining if is_reader(config) else Training
    return kind(config, rank, report, progress)


def _train_beside(stage: str, config: TrainingConfig, rank: int, folder: str) -> None:
    """Train a stage in a process that is not the first, in silence."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    meet(folder, rank, config.processes)
    training_of(config, rank).train_here(stage)
    torch.distributed.destroy_process_group()
