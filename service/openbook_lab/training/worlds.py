"""Invented worlds: the encyclopedia with its facts dealt out anew.

No office there has its true holder, so memory answers nothing, and the same question has another answer in every world.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openbook.entities import Passage
from openbook_lab.encyclopedia import articles, load_world, passages, questions, shuffled
from openbook_lab.training.examples import occurrences

YEARS = (2016, 2018)
LONGEST_ANSWER_WORDS = 12


@dataclass(frozen=True, slots=True)
class LibraryQuestion:
    """A question to the passages of one library. Every answer is right; the target is the first that was found.

    rows      passages that are known to hold the first answer; empty: unknown
    title     the title of these passages
    written   the target need not stand in a passage: the first answer, where none was found
    Without `answers`, the library does not answer the question.
    """

    text: str
    answers: tuple[str, ...]
    library: str
    kind: str = ""
    rows: tuple[int, ...] = ()
    title: str = ""
    written: bool = False


@dataclass(frozen=True, slots=True)
class InventedWorld:
    name: str
    passages: tuple[Passage, ...]
    questions: tuple[LibraryQuestion, ...]


def invented_worlds(count: int, *, seed: int) -> list[InventedWorld]:
    """`count` worlds, of both years in turn; the same for the same seed."""
    return [_invented_world(YEARS[number % len(YEARS)], seed * 1000 + number + 1) for number in range(count)]


def _invented_world(year: int, seed: int) -> InventedWorld:
    name = f"world-{year}-{seed}"
    world = shuffled(load_world(year), seed)
    written = tuple(passages(articles(world)))
    of_article: dict[str, list[int]] = {}
    for row, passage in enumerate(written):
        of_article.setdefault(passage.passage_id.rpartition("#")[0], []).append(row)
    kept = []
    for question in questions(world):
        # of several borders each is an answer of its own; the list of all of them comes first
        answers = question.answers[1:-1] if question.kind == "borders" else question.answers
        for answer in answers:
            rows = tuple(
                row for row in of_article.get(question.article_id, ()) if occurrences(answer, written[row].text)
            )
            if rows and len(answer.split()) <= LONGEST_ANSWER_WORDS:
                accepted = (answer, *(other for other in answers if other != answer))
                title = written[rows[0]].title
                kept.append(LibraryQuestion(question.question, accepted, name, question.kind, rows, title))
                break
    return InventedWorld(name, written, tuple(kept))


def by_kind(questions: Sequence[LibraryQuestion]) -> dict[str, list[LibraryQuestion]]:
    """The questions under their kinds, both in the order of their first occurrence."""
    kinds: dict[str, list[LibraryQuestion]] = {}
    for question in questions:
        kinds.setdefault(question.kind, []).append(question)
    return kinds


def draw_question(
    kinds: Mapping[str, Sequence[LibraryQuestion]], random_state: random.Random, *, office_share: float
) -> LibraryQuestion:
    """Who holds an office with probability `office_share`, else any kind, each as often as another."""
    office = "office" in kinds and random_state.random() < office_share
    return random_state.choice(kinds["office" if office else random_state.choice(list(kinds))])
