"""The paper's test of swapping (section 4.5): who leads, asked of the book of either year, and of invented ones.

Only offices whose holder differs between 2016 and 2018 are asked about, so that an answer tells which book it was read
from: with the book of one year, the answers of that year should be right and those of the other year wrong. In a book
whose holders were shuffled between countries nothing can be known beforehand, only read.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openbook.entities import Passage
from openbook.errors import InvalidRequest
from openbook.indexing.splitting import passages
from openbook_lab.datasets.qa_metrics import exact_match
from openbook_lab.encyclopedia import World, articles, load_world, questions, shuffled
from openbook_lab.evaluation.statistics import bootstrap
from openbook_lab.evaluation.tables import Cell, Table, percent

YEARS = (2016, 2018)
# Whose holders: those of a year, or those of the invented book that is asked.
OWN = "the book's own"
Holders = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LeaderQuestion:
    """One way of asking who holds an office. `answers` are the accepted forms of the holder's name, by whose it is:
    "2016", "2018" and, of an invented book, OWN."""

    text: str
    style: str
    answers: Holders


@dataclass(frozen=True, slots=True)
class LeaderAnswers:
    """What an index answered to each question."""

    index: str
    questions: tuple[LeaderQuestion, ...]
    given: tuple[str, ...]

    def right(self, whose: str, style: str | None = None) -> list[float]:
        """1 for each question that was answered with this holder, 0 for each other; of one style, or of all."""
        return [
            float(exact_match(given, question.answers[whose]))
            for question, given in zip(self.questions, self.given, strict=True)
            if style in (None, question.style)
        ]


def leader_questions(
    styles: Sequence[str] = (), *, sample: int | None = None, seed: int = 0
) -> tuple[LeaderQuestion, ...]:
    """Every changed office in each of these ways of asking; without any, in all that fit both years.

    `sample` draws so many of each way. Raises InvalidRequest for a style that there is none of.
    """
    found = {
        year: {one.question: one for one in questions(load_world(year)) if one.kind == "office" and one.changed}
        for year in YEARS
    }
    first, last = (found[year] for year in YEARS)
    # a question that names the year of taking office, or a title that changed too, is about one year alone
    both = [one for text, one in first.items() if text in last]
    known = sorted({one.style for one in both})
    for style in styles:
        if style not in known:
            raise InvalidRequest(field="style", reason=f"{style!r} is none of {', '.join(known)}")
    random_state = random.Random(seed)
    kept: set[str] = set()
    for style in styles or known:
        of_style = [one.question for one in both if one.style == style]
        kept.update(of_style if sample is None else random_state.sample(of_style, min(sample, len(of_style))))
    return tuple(
        LeaderQuestion(one.question, one.style, {str(year): found[year][one.question].answers for year in YEARS})
        for one in both
        if one.question in kept
    )


class ShuffledBook:
    """The encyclopedia of a year with its holders and facts dealt out anew by `seed`: a source of passages."""

    licence = "Apache-2.0"

    def __init__(self, year: int, seed: int) -> None:
        self._world: World = shuffled(load_world(year), seed)
        self.name = f"Openbook's encyclopedia of {year}, shuffled by {seed}"
        self.snapshot_date: str | None = None
        self.version = f"shuffled-{year}-{seed}"

    def passages(self) -> Iterator[Passage]:
        yield from passages(articles(self._world))

    def questions(self, asked: Sequence[LeaderQuestion]) -> tuple[LeaderQuestion, ...]:
        """Those of `asked` whose holder here is neither that of 2016 nor that of 2018, with this book's holder."""
        here = {one.question: one.answers for one in questions(self._world) if one.kind == "office"}
        return tuple(
            replace(one, answers={**one.answers, OWN: here[one.text]})
            for one in asked
            if one.text in here and not any(exact_match(name, here[one.text]) for name in _names(one.answers))
        )


def ask_leaders(
    index: str,
    asked: Sequence[LeaderQuestion],
    answer: Callable[[str], str],
    *,
    answered: Callable[[int], None] = lambda _: None,
) -> LeaderAnswers:
    """Ask every question once. `answered` is told how many are done."""
    given = []
    for number, question in enumerate(asked, start=1):
        given.append(answer(question.text))
        answered(number)
    return LeaderAnswers(index, tuple(asked), tuple(given))


def leaders_tables(answers: Sequence[LeaderAnswers]) -> tuple[Table, Table]:
    """Which holders each index answered with: over all questions, and for each way of asking."""
    whose = list(dict.fromkeys(name for one in answers for question in one.questions for name in question.answers))
    columns = tuple(f"holder: {name}" for name in whose)
    return (
        Table(
            "Who leads",
            ("index", *columns, "questions"),
            tuple((one.index, *_cells(one, whose, None)) for one in answers),
        ),
        Table(
            "Who leads, by way of asking",
            ("index", "style", *columns, "questions"),
            tuple(
                (one.index, style, *_cells(one, whose, style))
                for one in answers
                for style in dict.fromkeys(question.style for question in one.questions)
            ),
        ),
    )


def leaders_misses(answers: Sequence[LeaderAnswers], expected: Mapping[str, str]) -> Table:
    """What was answered with another name than that of the holder `expected` of each index."""
    return Table(
        "Misses",
        ("index", "question", "answer", "expected"),
        tuple(
            (one.index, question.text, given, question.answers[expected[one.index]][0])
            for one in answers
            if one.index in expected
            for question, given in zip(one.questions, one.given, strict=True)
            if not exact_match(given, question.answers[expected[one.index]])
        ),
    )


def _cells(answers: LeaderAnswers, whose: Sequence[str], style: str | None) -> tuple[Cell, ...]:
    asked = [question for question in answers.questions if style in (None, question.style)]
    return (
        # only an invented book has holders of its own: elsewhere that cell stays empty
        *(
            percent(bootstrap(answers.right(name, style)))
            if all(name in question.answers for question in asked)
            else None
            for name in whose
        ),
        len(asked),
    )


def _names(answers: Holders) -> list[str]:
    return [name for names in answers.values() for name in names]
