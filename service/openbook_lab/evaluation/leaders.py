"""The paper's test of swapping (section 4.5): who leads, asked of the book of each year, and of invented books.

All questions are about offices whose holder differs between 2016 and 2018, so that an answer shows which book it comes
from: over the book of one year, the answers of that year should come back and those of the other year should not. Where
holders are shuffled between countries, a generator can only read the answer, not know it.
"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from openbook.entities import Passage
from openbook.errors import InvalidRequest
from openbook.indexing.splitting import passages
from openbook_lab.datasets.qa_metrics import exact_match
from openbook_lab.encyclopedia import World, articles, load_world, questions, shuffled
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.tables import Cell, Table

YEARS = (2016, 2018)
# Names the holders of the invented book that is asked, beside those of a year.
OWN = "the book's own"
Holders = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LeaderQuestion:
    """One way of asking who holds an office. `answers` are the accepted forms of the holder's name: under "2016", under
    "2018" and, in an invented book, under OWN."""

    text: str
    style: str
    answers: Holders


@dataclass(frozen=True, slots=True)
class LeaderAnswers:
    """What an index answered to each question."""

    index: str
    questions: tuple[LeaderQuestion, ...]
    given: tuple[str, ...]

    def right(self, holders: str, style: str | None = None) -> list[bool]:
        """For each question, of one style or of all, whether the answer is this holder."""
        return [
            exact_match(given, question.answers[holders])
            for question, given in zip(self.questions, self.given, strict=True)
            if style in (None, question.style)
        ]


def leader_questions(
    styles: Sequence[str] = (), *, sample: int | None = None, seed: int = 0
) -> tuple[LeaderQuestion, ...]:
    """Every changed office in each of these styles; without any, in all styles that fit both years.

    `sample` draws as many of each style. Raises InvalidRequest for a style that does not exist.
    """
    found = {
        year: {one.question: one for one in questions(load_world(year)) if one.kind == "office" and one.changed}
        for year in YEARS
    }
    first, last = (found[year] for year in YEARS)
    # a question that names the year of taking office, or a title that also changed, fits one year only
    both = [one for text, one in first.items() if text in last]
    known = sorted({one.style for one in both})
    check_known("style", styles, known)
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


def check_known(field: str, given: Sequence[str], known: Collection[str]) -> None:
    """Raise InvalidRequest for a name that is not known."""
    for one in given:
        if one not in known:
            raise InvalidRequest(field=field, reason=f"{one!r} is none of {', '.join(sorted(known))}")


class ShuffledBook:
    """The encyclopedia of a year with its holders and facts shuffled by `seed`: a source of passages."""

    licence = "Apache-2.0"

    def __init__(self, year: int, seed: int) -> None:
        self._world: World = shuffled(load_world(year), seed)
        self.name = f"Openbook's encyclopedia of {year}, shuffled by {seed}"
        self.snapshot_date: str | None = None
        self.version = f"shuffled-{year}-{seed}"

    def passages(self) -> Iterator[Passage]:
        yield from passages(articles(self._world))

    def questions(self, asked: Sequence[LeaderQuestion]) -> tuple[LeaderQuestion, ...]:
        """The questions whose holder here is neither the one of 2016 nor the one of 2018, with this book's holder."""
        here = {one.question: one.answers for one in questions(self._world) if one.kind == "office"}
        return tuple(
            replace(one, answers={**one.answers, OWN: here[one.text]})
            for one in asked
            if one.text in here
            and not any(exact_match(name, here[one.text]) for names in one.answers.values() for name in names)
        )


def ask_leaders(
    index: str,
    asked: Sequence[LeaderQuestion],
    answer: Callable[[str], str],
    *,
    answered: Callable[[int], None] = lambda _: None,
) -> LeaderAnswers:
    """Ask every question once. `answered` receives the number of questions done."""
    return LeaderAnswers(index, tuple(asked), ask_texts([one.text for one in asked], answer, answered))


def ask_texts(texts: Sequence[str], answer: Callable[[str], str], answered: Callable[[int], None]) -> tuple[str, ...]:
    """The answers to these questions. `answered` receives the number of questions done."""
    given = []
    for number, text in enumerate(texts, start=1):
        given.append(answer(text))
        answered(number)
    return tuple(given)


def leaders_tables(answers: Sequence[LeaderAnswers]) -> tuple[Table, Table]:
    """Which holders each index answered with: over all questions, and for each style of asking."""
    every = list(dict.fromkeys(name for one in answers for question in one.questions for name in question.answers))
    columns = (*(f"holder: {name}" for name in every), "questions")
    return (
        Table("Who leads", ("index", *columns), tuple((one.index, *_cells(one, every, None)) for one in answers)),
        Table(
            "Who leads, by way of asking",
            ("index", "style", *columns),
            tuple(
                (one.index, style, *_cells(one, every, style))
                for one in answers
                for style in dict.fromkeys(question.style for question in one.questions)
            ),
        ),
    )


def leaders_misses(answers: Sequence[LeaderAnswers], expected: Mapping[str, str]) -> Table:
    """The answers that are not the holder `expected` of their index."""
    return Table(
        "Misses",
        ("index", "question", "answer", "expected"),
        tuple(
            (one.index, question.text, given, holder[0])
            for one in answers
            if one.index in expected
            for question, given in zip(one.questions, one.given, strict=True)
            if not exact_match(given, holder := question.answers[expected[one.index]])
        ),
    )


def _cells(answers: LeaderAnswers, every: Sequence[str], style: str | None) -> tuple[Cell, ...]:
    asked = [question for question in answers.questions if style in (None, question.style)]
    return (
        # only an invented book has holders of its own: elsewhere that cell is empty
        *(
            percent(answers.right(name, style)) if all(name in question.answers for question in asked) else None
            for name in every
        ),
        len(asked),
    )
