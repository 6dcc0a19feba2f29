"""What a training reads: question files, with the held-out articles set apart and disputed questions left out."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from openbook.entities import Passage
from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.sources import open_source
from openbook.storage.feedback import FeedbackFile
from openbook_lab.datasets.claim_files import read_claims
from openbook_lab.datasets.generation_files import read_prompts
from openbook_lab.datasets.qa_metrics import f1
from openbook_lab.datasets.question_files import read_published
from openbook_lab.datasets.questions import HELD_OUT_ARTICLES, Question, questions_of, read_questions
from openbook_lab.datasets.text_files import TextFile
from openbook_lab.training.recipe import TrainingConfig
from openbook_lab.training.stage import parts_of

# Annotators whose answers share less than half of their words, on average, have read the question differently.
LEAST_AGREEMENT = 0.5
DEV_QUESTIONS = 160


@dataclass(frozen=True, slots=True)
class Questions:
    """The questions to train on and the held-out ones; `dev` is a sample of `held_out`.

    The answers of `prompts` are what people wrote for them, those of `claims` the label. `left_out` were too long.
    """

    paragraphs: Sequence[Question] = ()
    sentences: Sequence[Question] = ()
    unanswerable: Sequence[Question] = ()
    alone: Sequence[Question] = ()
    prompts: Sequence[Question] = ()
    claims: Sequence[Question] = ()
    held_out: Sequence[Question] = ()
    dev: Sequence[Question] = ()
    passages: Sequence[Passage] = ()
    left_out: int = 0

    def texts(self) -> list[str]:
        """The wording of all training questions, in this order."""
        asked = (*self.paragraphs, *self.sentences, *self.unanswerable, *self.alone, *self.prompts, *self.claims)
        return [question.text for question in asked]

    def pairs(self) -> list[Question]:
        """What a closed book learns: all questions with answers, with the first answer; prompts with all texts."""
        asked = (*self.paragraphs, *self.sentences, *self.alone, *self.claims)
        return [*(replace(q, answers=q.answers[:1]) for q in asked if q.answers), *self.prompts]

    def without_longer(self, longest: int, tokenizer: Any) -> "Questions":
        """The same without questions, dev questions included, that have more than `longest` tokens."""
        kept: dict[str, Any] = {}
        left_out = 0
        for name in ("paragraphs", "sentences", "unanswerable", "alone", "prompts", "claims", "dev"):
            questions: Sequence[Question] = getattr(self, name)
            read = tokenizer([q.text for q in questions], verbose=False)["input_ids"] if questions else []
            kept[name] = [question for question, ids in zip(questions, read, strict=True) if len(ids) <= longest]
            left_out += len(questions) - len(kept[name])
        return replace(self, **kept, left_out=left_out)


def read_all(config: TrainingConfig, *, least_agreement: float = LEAST_AGREEMENT) -> Questions:
    """Read the question files and set the held-out articles apart."""
    over_paragraphs, sentences, more_unanswerable = (
        [question for path in paths for question in read_questions(path)]
        for paths in (config.paragraphs, config.sentences, config.unanswerable)
    )
    titles = {question.title for question in over_paragraphs}
    named = {title.replace("_", " ") for title in config.held_out}
    held_out = named or titles.intersection(HELD_OUT_ARTICLES)
    unknown = sorted(held_out - titles)
    if unknown:
        raise SettingInvalid(setting="--held-out", reason=f"no question over a paragraph is about {unknown[0]!r}")
    unanswerable = [q for q in (*over_paragraphs, *more_unanswerable) if not q.answers and q.context]
    paragraphs = [question for question in over_paragraphs if question.answers]
    apart = [question for question in paragraphs if question.title in held_out]
    given = [question for path in config.dev for question in _read_alone(path)]
    if config.dev and not all(question.answers for question in given):
        raise SourceInvalid(source=config.dev[0], reason="a question to measure with needs an answer to be marked by")
    dev = given or apart
    return Questions(
        paragraphs=agreed_upon([one for one in paragraphs if one.title not in held_out], least_agreement),
        sentences=sentences,
        unanswerable=[question for question in unanswerable if question.title not in held_out],
        alone=[
            *(question for path in config.questions for question in _read_alone(path)),
            *(question for path in config.feedback for question in read_feedback(path)),
        ],
        prompts=[Question(one.text, one.references) for path in config.texts for one in read_prompts(path)],
        claims=[Question(one.text, (one.label,)) for path in config.claims for one in read_claims(path)],
        held_out=[*apart, *given],
        dev=random.Random(config.seed).sample(dev, min(DEV_QUESTIONS, len(dev))),
        passages=[passage for path in config.passages for passage in open_source(str(path)).passages()],
    )


def _read_alone(path: Path) -> list[Question]:
    """As read_questions, and also the public files of open-domain questions in their own forms."""
    file = TextFile(path)
    published = read_published(file)
    return list(questions_of(file) if published is None else (Question(q.text, q.golds.texts) for q in published))


def read_feedback(path: Path) -> list[Question]:
    """The questions that readers know the answer to: their correction, or the answer that they found right.

    Of all that was said of one question the last counts: a later index may answer it differently. A question whose last
    answer was wrong, without a correction, teaches nothing. Raises SourceInvalid for a file that says nothing at all.
    """
    answers: dict[str, str | None] = {}
    for record in FeedbackFile(path).records():
        answers[record.question] = record.correction or (record.answer if record.rating == "up" else None)
    if not answers:
        raise SourceInvalid(source=path, reason="holds no feedback")
    return [Question(question, (answer,)) for question, answer in answers.items() if answer]


def pieces_of(text: str, *, words: int = 100) -> list[str]:
    """A paragraph in pieces of about equal length, none above `words` words: an index holds it like this."""
    split = text.split()
    return [" ".join(piece) for piece in parts_of(split, -(-len(split) // words))]


def titled_pieces(questions: Sequence[Question]) -> list[tuple[str, str]]:
    """Every paragraph of the questions once, in pieces: (title, text) pairs in the order of the questions."""
    paragraphs = dict.fromkeys((question.title, question.context) for question in questions if question.context)
    return [(title, piece) for title, context in paragraphs for piece in pieces_of(context)]


def agreed_upon(questions: Sequence[Question], least: float = LEAST_AGREEMENT) -> list[Question]:
    """The questions whose annotators agree, each with its answers in the order of agreement: the first is the target.

    A question without answers stays as it is.
    """
    kept = []
    for question in questions:
        ordered = by_agreement(question.answers)
        if not ordered or ordered[0][0] >= least:
            kept.append(replace(question, answers=tuple(answer for _, answer in ordered)))
    return kept


def by_agreement(answers: Sequence[str]) -> list[tuple[float, str]]:
    """Every distinct answer with its mean F1 against the other annotators' answers, the most agreed upon first.

    Of equals the shorter comes first. A lone answer scores 1.
    """
    agreement: dict[str, float] = {}
    for i, answer in enumerate(answers):
        others = [*answers[:i], *answers[i + 1 :]]
        agreement[answer] = sum(f1(answer, [other]) for other in others) / len(others) if others else 1.0
    return sorted(((score, answer) for answer, score in agreement.items()), key=lambda pair: (-pair[0], len(pair[1])))


def check_questions(config: TrainingConfig, questions: Questions) -> None:
    """Raises SourceInvalid or SettingInvalid for questions that are too few or lack what the recipe needs."""
    reading, retrieval, joint, dev = config.reading, config.retrieval, config.joint, questions.dev
    reads = bool(reading.steps) and not config.closed_book
    for name in ("paragraphs", "sentences"):
        lacking = [
            (q, lacks) for q in getattr(questions, name) for lacks in ("context", "answers") if not getattr(q, lacks)
        ]
        for question, lacks in lacking:
            reason = f"{question.text!r} has no {lacks}, as {name} need"
            raise SourceInvalid(source=", ".join(map(str, getattr(config, name))), reason=reason)
    for source, reason in _lacks(config, questions, reads):
        raise SourceInvalid(source=source, reason=reason)
    searched = len(titled_pieces(questions.paragraphs)) + len(questions.passages)
    if joint.steps and searched < joint.n_docs:
        reason = f"{joint.n_docs} passages a question, and {searched} are there to be found: name some with --passages"
        raise SettingInvalid(setting="--n-docs", reason=reason)
    if reading.patience and reads and not any(question.context for question in dev):
        reason = (
            "stopping early in reading needs held-out questions with their paragraphs: name an article with --held-out"
        )
        raise SettingInvalid(setting="--patience", reason=reason)
    if (reading.patience or retrieval.patience or joint.patience) and not dev:
        reason = "stopping early needs held-out questions with answers: name a file with --dev"
        raise SettingInvalid(setting="--patience", reason=reason)


def _lacks(config: TrainingConfig, questions: Questions, reads: bool) -> Iterator[tuple[str, str]]:
    """What there is too little of, each with the reason."""
    if config.closed_book and not questions.pairs():
        yield "questions", "none of them has an answer, so there is nothing to train on"
    if reads and not questions.paragraphs:
        learns = "reading learns from questions over paragraphs, and there are none"
        yield "paragraphs", f"{learns}: name a file with --paragraphs, or leave reading out with --reading-steps 0"
    if config.retrieval.steps and not any(q.answers for q in (*questions.paragraphs, *questions.alone)):
        yield "questions", "none of them has an answer, so there is nothing to find"
    asked = (*questions.paragraphs, *questions.alone, *questions.prompts, *questions.claims)
    given, needed = sum(bool(question.answers) for question in asked), config.joint.questions_per_step
    if config.joint.steps and given < needed:
        left = f"{given} questions with answers are left to train on, and a step takes {needed}"
        yield "questions", f"{left}: give more, or take fewer with --set joint.questions_per_step=N"
