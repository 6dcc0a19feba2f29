"""What a training reads, and what it refuses before anything long begins."""

import os
import random
import tempfile
from dataclasses import dataclass
from pathlib import Path

from service.entities import Passage
from service.errors import SettingInvalid, SourceInvalid
from service.offline.evaluation.claim_files import read_claims
from service.offline.evaluation.generation_files import read_prompts
from service.offline.sources import open_source
from service.offline.training.agreement import agreed_upon
from service.offline.training.examples import Question
from service.offline.training.mixture import titled_pieces
from service.offline.training.questions import read_questions
from service.offline.training.recipe import HELD_OUT_ARTICLES, TrainingConfig, check_numbers


@dataclass(frozen=True, slots=True)
class Questions:
    """The question files, read: what is trained on, and what is held out. `dev` is a sample of `held_out`.

    Of `prompts` the answers are what people wrote for them, of `claims` the label.
    """

    paragraphs: list[Question]
    sentences: list[Question]
    unanswerable: list[Question]
    alone: list[Question]
    prompts: list[Question]
    claims: list[Question]
    held_out: list[Question]
    dev: list[Question]
    passages: list[Passage]

    def texts(self) -> list[str]:
        """The wording of all that is trained on, in this order."""
        asked = (*self.paragraphs, *self.sentences, *self.unanswerable, *self.alone, *self.prompts, *self.claims)
        return [question.text for question in asked]

    def to_joint_training(self) -> list[Question]:
        """Those that joint training can learn from."""
        return [q for q in (*self.paragraphs, *self.alone, *self.prompts, *self.claims) if q.answers]

    def pairs(self) -> list[Question]:
        """All that have answers: what a closed book learns from."""
        return [*self.to_joint_training(), *self.sentences]


def read_all(config: TrainingConfig) -> Questions:
    """Read the question files and set the held-out articles apart."""
    over_paragraphs = _read(config.paragraphs)
    titles = {question.title for question in over_paragraphs}
    named = {title.replace("_", " ") for title in config.held_out}
    held_out = named or {title for title in HELD_OUT_ARTICLES if title in titles}
    unknown = sorted(held_out - titles)
    if unknown:
        raise SourceInvalid(source="held-out", reason=f"no question over a paragraph is about {unknown[0]!r}")
    unanswerable = [q for q in (*over_paragraphs, *_read(config.unanswerable)) if not q.answers and q.context]
    paragraphs = [question for question in over_paragraphs if question.answers]
    dev = [question for question in paragraphs if question.title in held_out]
    return Questions(
        paragraphs=agreed_upon([question for question in paragraphs if question.title not in held_out]),
        sentences=_read(config.sentences),
        unanswerable=[question for question in unanswerable if question.title not in held_out],
        alone=_read(config.questions),
        prompts=[Question(one.text, one.references) for path in config.texts for one in read_prompts(path)],
        claims=[Question(one.text, (one.label,)) for path in config.claims for one in read_claims(path)],
        held_out=dev,
        dev=random.Random(config.seed).sample(dev, min(config.dev_questions, len(dev))),
        passages=[passage for path in config.passages for passage in open_source(str(path)).passages()],
    )


def _read(paths: tuple[Path, ...]) -> list[Question]:
    return [question for path in paths for question in read_questions(path)]


def check_folders(config: TrainingConfig) -> None:
    """Raises SourceInvalid or SettingInvalid for files, folders and numbers that would end the training later."""
    if config.processes < 1:
        raise SourceInvalid(source="processes", reason=f"{config.processes} processes cannot train")
    check_numbers(config)
    if config.closed_book and config.joint.steps:
        raise SettingInvalid(
            setting="joint.steps", reason="with a closed book there are no passages to be found, so it can but be 0"
        )
    for path in config.files:
        if not path.is_file():
            raise SourceInvalid(source=path, reason="there is no such file")
    if config.output.exists() and (not config.output.is_dir() or any(config.output.iterdir())):
        raise SourceInvalid(source=config.output, reason="is there already and is not empty")
    for folder in (config.work, config.output.parent):
        _check_writable(folder)


def check_questions(config: TrainingConfig, questions: Questions) -> None:
    """Raises SourceInvalid for questions that cannot be trained on, or are too few."""
    for files, what, given in (
        (config.paragraphs, "paragraphs", questions.paragraphs),
        (config.sentences, "sentences", questions.sentences),
    ):
        for question in given:
            if not question.context or not question.answers:
                lacks = "context" if not question.context else "answers"
                raise SourceInvalid(
                    source=", ".join(str(file) for file in files),
                    reason=f"{question.text!r} has no {lacks}, as {what} need",
                )
    if config.closed_book and not questions.pairs():
        raise SourceInvalid(source="questions", reason="none of them has an answer, so there is nothing to train on")
    if config.reading.steps and not config.closed_book and not questions.paragraphs:
        raise SourceInvalid(
            source="paragraphs",
            reason="reading learns from questions over paragraphs, and there are none: name a file with --paragraphs, "
            "or leave reading out with --reading-steps 0",
        )
    if config.joint.steps:
        _check_joint(config, questions)
    if (config.reading.patience or config.joint.patience) and not questions.dev:
        raise SourceInvalid(
            source="patience", reason="stopping early needs held-out questions: name an article with --held-out"
        )


def _check_joint(config: TrainingConfig, questions: Questions) -> None:
    needed, given = config.joint.questions_per_step, len(questions.to_joint_training())
    if given < needed:
        raise SourceInvalid(
            source="questions",
            reason=f"{given} questions with answers are left to train on, and a step takes {needed}",
        )
    searched = len(titled_pieces(questions.paragraphs)) + len(questions.passages)
    if searched < config.joint.n_docs:
        raise SourceInvalid(
            source="n-docs", reason=f"{config.joint.n_docs} passages a question, and {searched} are there to be found"
        )


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=folder)
        os.close(descriptor)
        Path(name).unlink()
    except OSError as error:
        raise SourceInvalid(source=folder, reason=f"cannot be written to ({error.strerror or error})") from error
