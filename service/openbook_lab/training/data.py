"""What a training reads: question files, with what is held out set apart."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from openbook.entities import Passage
from openbook.errors import SettingInvalid, SourceInvalid
from openbook.indexing.sources import open_source
from openbook_lab.datasets.claim_files import read_claims
from openbook_lab.datasets.generation_files import read_prompts
from openbook_lab.datasets.question_files import read_published
from openbook_lab.datasets.questions import HELD_OUT_ARTICLES, questions_of, read_questions
from openbook_lab.datasets.text_files import TextFile
from openbook_lab.training.agreement import agreed_upon
from openbook_lab.training.examples import Question
from openbook_lab.training.recipe import TrainingConfig


@dataclass(frozen=True, slots=True)
class Questions:
    """The question files, read: what is trained on, and what is held out. `dev` is a sample of `held_out`.

    Of `prompts` the answers are what people wrote for them, of `claims` the label. `left_out` of them were too long.
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
    left_out: int = 0

    def texts(self) -> list[str]:
        """The wording of all that is trained on, in this order."""
        asked = (*self.paragraphs, *self.sentences, *self.unanswerable, *self.alone, *self.prompts, *self.claims)
        return [question.text for question in asked]

    def to_joint_training(self) -> list[Question]:
        """Those that joint training can learn from."""
        return [q for q in (*self.paragraphs, *self.alone, *self.prompts, *self.claims) if q.answers]

    def pairs(self) -> list[Question]:
        """What a closed book learns from: all that have answers, with the first of them; of `prompts` all."""
        asked = (*self.paragraphs, *self.sentences, *self.alone, *self.claims)
        return [*(replace(q, answers=q.answers[:1]) for q in asked if q.answers), *self.prompts]

    def without(self, too_long: Callable[[Sequence[str]], Sequence[bool]]) -> "Questions":
        """The same without what is asked at too great a length, dev questions among it."""
        kept: dict[str, Any] = {}
        left_out = 0
        for name in ("paragraphs", "sentences", "unanswerable", "alone", "prompts", "claims", "dev"):
            questions: list[Question] = getattr(self, name)
            long = too_long([question.text for question in questions])
            kept[name] = [question for question, is_long in zip(questions, long, strict=True) if not is_long]
            left_out += sum(long)
        return replace(self, **kept, left_out=left_out)


def read_all(config: TrainingConfig) -> Questions:
    """Read the question files and set the held-out articles apart."""
    over_paragraphs = _read(config.paragraphs)
    titles = {question.title for question in over_paragraphs}
    named = {title.replace("_", " ") for title in config.held_out}
    held_out = named or {title for title in HELD_OUT_ARTICLES if title in titles}
    unknown = sorted(held_out - titles)
    if unknown:
        raise SettingInvalid(setting="--held-out", reason=f"no question over a paragraph is about {unknown[0]!r}")
    unanswerable = [q for q in (*over_paragraphs, *_read(config.unanswerable)) if not q.answers and q.context]
    paragraphs = [question for question in over_paragraphs if question.answers]
    apart = [question for question in paragraphs if question.title in held_out]
    given = [question for path in config.dev for question in _read_alone(path)]
    if config.dev and not all(question.answers for question in given):
        raise SourceInvalid(source=config.dev[0], reason="a question to measure with needs an answer to be marked by")
    dev = given or apart
    return Questions(
        paragraphs=agreed_upon([question for question in paragraphs if question.title not in held_out]),
        sentences=_read(config.sentences),
        unanswerable=[question for question in unanswerable if question.title not in held_out],
        alone=[question for path in config.questions for question in _read_alone(path)],
        prompts=[Question(one.text, one.references) for path in config.texts for one in read_prompts(path)],
        claims=[Question(one.text, (one.label,)) for path in config.claims for one in read_claims(path)],
        held_out=[*apart, *given],
        dev=random.Random(config.seed).sample(dev, min(config.dev_questions, len(dev))),
        passages=[passage for path in config.passages for passage in open_source(str(path)).passages()],
    )


def _read(paths: tuple[Path, ...]) -> list[Question]:
    return [question for path in paths for question in read_questions(path)]


def _read_alone(path: Path) -> list[Question]:
    """As read_questions, and the public files of open-domain questions in their own forms."""
    file = TextFile(path)
    published = read_published(file)
    return list(questions_of(file) if published is None else (Question(q.text, q.golds.texts) for q in published))
