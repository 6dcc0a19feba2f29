"""Which questions are asked: those about articles that training never saw, or a sample of them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openbook.errors import SourceInvalid
from openbook_lab.datasets.questions import Question, read_questions
from openbook_lab.evaluation.reports import Facts

LISTED_TITLES = 12


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """`every` question of the files, for the paragraphs of the book, and the questions `chosen` to be asked."""

    every: tuple[Question, ...]
    chosen: tuple[Question, ...]

    @property
    def near_misses(self) -> tuple[Question, ...]:
        """Those that the text does not answer."""
        return tuple(one for one in self.every if not one.answers)

    def facts(self) -> Facts:
        """For a report: how many questions, and the titles of their articles, or how many if they are many."""
        titles = list(dict.fromkeys(question.title for question in self.chosen))
        listed = ", ".join(titles) if len(titles) <= LISTED_TITLES else str(len(titles))
        return {"questions": len(self.chosen), "articles": listed}


def choose_questions(
    files: Sequence[Path],
    *,
    held_out: Sequence[str] | None,
    sample: int | None = None,
    seed: int = 0,
) -> QuestionSet:
    """The questions with answers about one of the titles `held_out` (None: any title), or `sample` of them.

    Raises SourceInvalid where files hold none.
    """
    every = [question for file in files for question in read_questions(file)]
    # read_questions turns the underscores of titles into spaces
    titles = None if held_out is None else {title.replace("_", " ") for title in held_out}
    chosen = [question for question in every if question.answers and (titles is None or question.title in titles)]
    if files and not chosen:
        what = "no question has an answer" if held_out is None else f"no question is about {', '.join(held_out)}"
        raise SourceInvalid(source=", ".join(map(str, files)), reason=f"{what} (--held-out TITLE, or --all)")
    if sample is not None:
        chosen = random.Random(seed).sample(chosen, min(sample, len(chosen)))
    return QuestionSet(tuple(every), tuple(chosen))
