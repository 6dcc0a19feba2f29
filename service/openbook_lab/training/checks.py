"""What a training refuses before anything long begins."""

import os
import tempfile
from pathlib import Path

from openbook.errors import SettingInvalid, SourceInvalid
from openbook_lab.training.data import Questions
from openbook_lab.training.mixture import titled_pieces
from openbook_lab.training.recipe import TrainingConfig, check_numbers


def check_folders(config: TrainingConfig) -> None:
    """Raises SourceInvalid or SettingInvalid for files, folders and numbers that would end the training later."""
    if config.processes < 1:
        raise SourceInvalid(source="processes", reason=f"{config.processes} processes cannot train")
    check_numbers(config)
    _check_stages(config)
    for path in config.files:
        if not path.is_file():
            raise SourceInvalid(source=path, reason="there is no such file")
    if config.output.exists() and (not config.output.is_dir() or any(config.output.iterdir())):
        raise SourceInvalid(source=config.output, reason="is there already and is not empty")
    for folder in (config.work, config.output.parent):
        _check_writable(folder)


def _check_stages(config: TrainingConfig) -> None:
    if {"generator-encoder", "generator-decoder"} <= set(config.reading.freeze) and config.reading.steps:
        raise SettingInvalid(
            setting="--freeze", reason="with both parts of the generator frozen reading has nothing to learn: steps 0"
        )
    if {"question-encoder", "generator-encoder", "generator-decoder"} <= set(
        config.joint.freeze
    ) and config.joint.steps:
        raise SettingInvalid(setting="--freeze", reason="with all three parts frozen there is nothing to learn")
    if not config.closed_book:
        return
    if config.joint.steps:
        raise SettingInvalid(
            setting="--joint-steps", reason="with a closed book there are no passages to be found, so it can but be 0"
        )
    if not config.reading.steps:
        raise SettingInvalid(setting="--reading-steps", reason="a closed book learns by reading alone")
    for name in ("passages", "unanswerable", "worlds"):
        if getattr(config, name):
            raise SettingInvalid(setting=f"--{name}", reason="a closed book has no use for them: leave them out")


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
    _check_patience(config, questions)


def _check_patience(config: TrainingConfig, questions: Questions) -> None:
    over_paragraphs = config.reading.patience and config.reading.steps and not config.closed_book
    if over_paragraphs and not any(question.context for question in questions.dev):
        raise SettingInvalid(
            setting="--patience",
            reason="stopping early in reading needs held-out questions with their paragraphs: name an article with "
            "--held-out",
        )
    if (config.reading.patience or config.joint.patience) and not questions.dev:
        raise SettingInvalid(
            setting="--patience", reason="stopping early needs held-out questions with answers: name a file with --dev"
        )


def _check_joint(config: TrainingConfig, questions: Questions) -> None:
    needed, given = config.joint.questions_per_step, len(questions.to_joint_training())
    if given < needed:
        raise SourceInvalid(
            source="questions",
            reason=f"{given} questions with answers are left to train on, and a step takes {needed}: give more, or "
            "take fewer with --set joint.questions_per_step=N",
        )
    searched = len(titled_pieces(questions.paragraphs)) + len(questions.passages)
    if searched < config.joint.n_docs:
        raise SettingInvalid(
            setting="--n-docs",
            reason=f"{config.joint.n_docs} passages a question, and {searched} are there to be found: "
            "name some with --passages",
        )


def _check_writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=folder)
        os.close(descriptor)
        Path(name).unlink()
    except OSError as error:
        raise SourceInvalid(source=folder, reason=f"cannot be written to ({error.strerror or error})") from error
