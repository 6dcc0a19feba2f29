"""The whole training: warm start -> reading -> distillation -> joint -> a checkpoint folder.

Every stage leaves its result in the work folder; what is there already is not made again, so a run that was
interrupted is begun again with the same call and goes on where it was.
"""

import json
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import AutoTokenizer, BartForConditionalGeneration, DPRQuestionEncoder

from service.entities import Passage
from service.errors import SourceInvalid
from service.offline.sources import open_source
from service.offline.training.dev_scores import reading_scores
from service.offline.training.distillation import DistillationConfig, distil_question_encoder
from service.offline.training.examples import Question, read_questions
from service.offline.training.joint import JointConfig, Library, train_joint
from service.offline.training.libraries import draw_from, library_questions, make_libraries
from service.offline.training.loop import ALONE, Replicas, Report
from service.offline.training.mixture import Mixture, Source, question_sources
from service.offline.training.reading import ReadingConfig, train_logits_bias, train_reading
from service.offline.training.vectors import KeptVectors
from service.offline.training.warm_start import warm_start_generator, warm_start_question_encoder
from service.offline.training.weights import minilm_base, save_on_base
from service.offline.training.world_examples import invented_worlds, world_question_texts, world_sources
from service.rag.passage_encoder import PassageEncoder, minilm_folder

HELD_OUT_ARTICLES = ("Apollo program", "Kenya", "Normans", "Pharmacy")

Stage = Literal["reading", "joint"]
RESULTS: dict[Stage, str] = {"reading": "reader.pt", "joint": "joint.pt"}


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Everything that the result depends on. `work` holds what a later call goes on from, and the run log.

    paragraphs     questions whose context is a paragraph (SQuAD as JSON lines); articles in `held_out` are for dev
    sentences      questions whose context is a single sentence (QAMR)
    unanswerable   questions that their paragraph does not answer (SQuAD 2.0)
    questions      questions alone: the question encoder learns from them, and those with answers are asked of all
                   passages in joint training
    passages       passages that nobody asked anything about (.jsonl, .tsv): searched beside the paragraphs
    processes      how many train together, each on one thread; 1 alone on all threads
    """

    output: Path
    work: Path
    paragraphs: tuple[Path, ...]
    sentences: tuple[Path, ...] = ()
    unanswerable: tuple[Path, ...] = ()
    questions: tuple[Path, ...] = ()
    passages: tuple[Path, ...] = ()
    held_out: tuple[str, ...] = HELD_OUT_ARTICLES
    dev_questions: int = 160
    name: str = "openbook-mini"
    worlds: int = 4
    world_share: float = 0.4
    office_share: float = 0.5
    paragraph_kinds: Mapping[str, float] = field(
        default_factory=lambda: {"paragraph": 0.8, "unanswerable": 0.1, "alone": 0.1}
    )
    processes: int = 1
    reading: ReadingConfig = field(default_factory=ReadingConfig)
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    joint: JointConfig = field(default_factory=JointConfig)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Questions:
    """The question files, read: what is trained on, and what is held out."""

    paragraphs: list[Question]
    sentences: list[Question]
    unanswerable: list[Question]
    alone: list[Question]
    dev: list[Question]
    passages: list[Passage]


def run(config: TrainingConfig, report: Report) -> Path:
    """Train, and return the folder that was written. `report` is told one line at a time how it goes.

    Raises SourceInvalid for a question file that cannot be read, BaseWeightsMissing without the base's package.
    """
    config.work.mkdir(parents=True, exist_ok=True)
    _check(config)
    for stage, file in RESULTS.items():
        if stage == "joint" and not (config.work / "question_encoder.pt").is_file():
            report("distillation: the question encoder learns the passage encoder's vectors")
            _distil(config, _log(config, "distillation", report))
        if (config.work / file).is_file():
            report(f"{stage}: done before, {config.work / file} is used")
            continue
        report(f"{stage}: encoding passages")
        _sources(config) if stage == "reading" else _libraries(config)
        report(f"{stage}: {config.processes} process(es)")
        _run_replicas(config, stage, report)
    question_encoder, generator = _models(config, config.work / "joint.pt")
    save_on_base(
        config.output,
        name=config.name,
        question_encoder=question_encoder,
        generator=generator,
        tokenizer=AutoTokenizer.from_pretrained(minilm_folder()),
        passage_encoder=PassageEncoder.load(),
        base=minilm_base(),
    )
    report(f"saved {config.output}")
    return config.output


def read_all(config: TrainingConfig) -> Questions:
    """Read the question files and set the held-out articles apart."""
    paragraphs = [question for path in config.paragraphs for question in read_questions(path)]
    unanswerable = [question for path in config.unanswerable for question in read_questions(path)]
    dev = [question for question in paragraphs if question.title in config.held_out]
    return Questions(
        paragraphs=[question for question in paragraphs if question.title not in config.held_out],
        sentences=[question for path in config.sentences for question in read_questions(path)],
        unanswerable=[question for question in unanswerable if question.title not in config.held_out],
        alone=[question for path in config.questions for question in read_questions(path)],
        dev=random.Random(config.seed).sample(dev, min(config.dev_questions, len(dev))),
        passages=[passage for path in config.passages for passage in open_source(str(path)).passages()],
    )


def _check(config: TrainingConfig) -> None:
    for path in (*config.paragraphs, *config.sentences, *config.unanswerable, *config.questions, *config.passages):
        if not path.is_file():
            raise SourceInvalid(source=path, reason="there is no such file")
    if config.processes < 1:
        raise SourceInvalid(source="processes", reason=f"{config.processes} processes cannot train")


def _log(config: TrainingConfig, stage: str, report: Report) -> Callable[[dict[str, Any]], None]:
    """A run log of one JSON line each, with the stage, the seed and the time; and a line for whoever waits."""

    def log(line: dict[str, Any]) -> None:
        entry = {"stage": stage, "seed": config.seed, "time": time.strftime("%Y-%m-%dT%H:%M:%S"), **line}
        with (config.work / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in line.items() if isinstance(value, int | float))
        report(f"{stage}: {numbers}")

    return log


def _run_replicas(config: TrainingConfig, stage: Stage, report: Report) -> None:
    """Run one stage in `config.processes` processes; this one is the first of them."""
    log = _log(config, stage, report)
    if config.processes == 1:
        _train(config, stage, ALONE, log)
        return
    spawn = torch.multiprocessing.get_context("spawn")
    threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        others = [
            spawn.Process(target=_replica, args=(config, stage, rank, meeting), daemon=True)
            for rank in range(1, config.processes)
        ]
        for process in others:
            process.start()
        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=config.processes)
        try:
            _train(config, stage, Replicas(0, config.processes), log)
        finally:
            torch.distributed.destroy_process_group()
            torch.set_num_threads(threads)
            for process in others:
                process.join(timeout=60)


def _replica(config: TrainingConfig, stage: Stage, rank: int, meeting: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=config.processes)
    _train(config, stage, Replicas(rank, config.processes), lambda _: None)
    torch.distributed.destroy_process_group()


def _train(config: TrainingConfig, stage: Stage, replicas: Replicas, log: Callable[[dict[str, Any]], None]) -> None:
    torch.manual_seed(config.seed)
    if stage == "reading":
        _read(config, replicas, log)
    else:
        _join(config, replicas, log)


def _read(config: TrainingConfig, replicas: Replicas, log: Callable[[dict[str, Any]], None]) -> None:
    questions = read_all(config)
    batches_per_pool = max(1, config.reading.examples_per_pool // 40)
    mixture = Mixture(_sources(config), seed=config.seed, pools=config.reading.steps // batches_per_pool)
    generator = warm_start_generator(minilm_folder())
    train_reading(
        generator,
        AutoTokenizer.from_pretrained(minilm_folder()),
        mixture.pool,
        config.reading,
        state_file=config.work / "reading_state.pt",
        log=log,
        dev=questions.dev,
        replicas=replicas,
    )
    if replicas.rank == 0:
        torch.save({"generator": generator.state_dict()}, config.work / "reader.pt")


def _sources(config: TrainingConfig) -> dict[str, Source]:
    """What reading draws from. Every process makes it; the first to do so leaves the vectors for the others."""
    questions = read_all(config)
    sources, pool = question_sources(
        questions.paragraphs,
        questions.sentences,
        questions.unanswerable,
        encoder=KeptVectors(config.work),
        more_pieces=[(passage.title, passage.text) for passage in questions.passages],
    )
    return sources | world_sources(invented_worlds(config.worlds, seed=config.seed), pool=pool)


def _libraries(config: TrainingConfig) -> dict[str, Library]:
    """What joint training searches, likewise."""
    questions = read_all(config)
    return make_libraries(
        questions.paragraphs,
        invented_worlds(config.worlds, seed=config.seed),
        encoder=KeptVectors(config.work),
        more_passages=questions.passages,
    )


def _distil(config: TrainingConfig, log: Callable[[dict[str, Any]], None]) -> None:
    questions = read_all(config)
    texts = [
        question.text
        for question in (*questions.paragraphs, *questions.sentences, *questions.unanswerable, *questions.alone)
    ]
    texts += world_question_texts(invented_worlds(config.worlds, seed=config.seed))
    torch.manual_seed(config.seed)
    encoder = warm_start_question_encoder(minilm_folder())
    distil_question_encoder(
        encoder,
        AutoTokenizer.from_pretrained(minilm_folder()),
        list(dict.fromkeys(texts)),
        KeptVectors(config.work),
        config.distillation,
        log=log,
    )
    torch.save({"question_encoder": encoder.state_dict()}, config.work / "question_encoder.pt")


def _join(config: TrainingConfig, replicas: Replicas, log: Callable[[dict[str, Any]], None]) -> None:
    questions = read_all(config)
    worlds = invented_worlds(config.worlds, seed=config.seed)
    question_encoder, generator = _models(config, config.work / "reader.pt", config.work / "question_encoder.pt")
    tokenizer = AutoTokenizer.from_pretrained(minilm_folder())
    train_joint(
        question_encoder,
        generator,
        tokenizer,
        _libraries(config),
        draw_from(
            library_questions(questions.paragraphs, worlds, unanswerable=questions.unanswerable, alone=questions.alone),
            world_share=config.world_share,
            office_share=config.office_share,
            paragraph_kinds=config.paragraph_kinds,
        ),
        config.joint,
        state_file=config.work / "joint_state.pt",
        log=log,
        replicas=replicas,
    )
    if replicas.rank == 0:
        matched, overlap = reading_scores(generator, tokenizer, questions.dev)
        log({"dev_exact_match": matched, "dev_f1": overlap, "questions": len(questions.dev)})
        states = {"generator": generator.state_dict(), "question_encoder": question_encoder.state_dict()}
        torch.save(states, config.work / "joint.pt")


def _models(config: TrainingConfig, *files: Path) -> tuple[DPRQuestionEncoder, BartForConditionalGeneration]:
    """Both models with the weights that these files hold."""
    states: dict[str, Any] = {}
    for file in files:
        states |= torch.load(file, weights_only=True)
    question_encoder = warm_start_question_encoder(minilm_folder())
    question_encoder.load_state_dict(states["question_encoder"])
    generator = warm_start_generator(minilm_folder())
    train_logits_bias(generator)
    generator.load_state_dict(states["generator"])
    return question_encoder, generator
