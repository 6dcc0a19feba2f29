"""Which questions are asked: those to articles that training never saw, or a sample of them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openbook.errors import SourceInvalid
from openbook_lab.datasets.questions import Question, read_questions

LISTED_TITLES = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """`every` question of the files, whose paragraphs make the book, and those `chosen` to be asked."""

    every: tuple[Question, ...]
    chosen: tuple[Question, ...]

    def facts(self) -> dict[str, str | int | float]:
        """For a report: how many questions, and to which articles where they can be listed."""
        titles = list(dict.fromkeys(question.title for question in self.chosen))
        listed = ", ".join(titles) if len(titles) <= LISTED_TITLES else str(len(titles))
        return {"questions": len(self.chosen), "articles": listed}


def choose_questions(
    files: Sequence[Path], *, held_out: Sequence[str] | None, sample: int | None = None, seed: int = 0
) -> Asked:
    """The questions that have answers and are about one of the titles `held_out` (None: about any), or `sample` of
    them drawn with `seed`. Raises SourceInvalid where none is left."""
    every = [question for file in files for question in read_questions(file)]
    chosen = [q for q in every if q.answers and _is_about(q, held_out)]
    if not chosen:
        what = "no question has an answer" if held_out is None else f"no question is about {', '.join(held_out)}"
        raise SourceInvalid(source=", ".join(map(str, files)), reason=f"{what} (--held-out TITLE, or --all)")
    if sample is not None:
        chosen = random.Random(seed).sample(chosen, min(sample, len(chosen)))
    return Asked(tuple(every), tuple(chosen))


def choose_unanswerable(
    files: Sequence[Path], *, held_out: Sequence[str] | None, sample: int | None = None, seed: int = 0
) -> Asked:
    """Likewise of the questions without answers; no file gives none. Raises SourceInvalid for files with none."""
    every = [question for file in files for question in read_questions(file)]
    chosen = [q for q in every if not q.answers and _is_about(q, held_out)]
    if files and not chosen:
        raise SourceInvalid(
            source=", ".join(map(str, files)), reason="no question to these articles is without an answer"
        )
    if sample is not None:
        chosen = random.Random(seed).sample(chosen, min(sample, len(chosen)))
    return Asked(tuple(every), tuple(chosen))


def _is_about(question: Question, titles: Sequence[str] | None) -> bool:
    # read_questions has spaces where files have underscores, as training's --held-out has
    return titles is None or question.title in {title.replace("_", " ") for title in titles}
