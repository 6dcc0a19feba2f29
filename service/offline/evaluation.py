"""The paper's test of swapping (section 4.5): who leads, asked of the book of either year.

Only offices whose holder differs between 2016 and 2018 are asked about, so that an answer tells which book it was read
from: with the book of one year, the answers of that year should be right and those of the other year wrong.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from service.errors import InvalidRequest
from service.offline.encyclopedia import load_world, questions
from service.offline.qa_metrics import exact_match

YEARS = (2016, 2018)


@dataclass(frozen=True, slots=True)
class LeaderQuestion:
    """One way of asking who holds an office. `answers` are the accepted forms of the holder's name of each year."""

    text: str
    style: str
    answers: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LeadersCell:
    """How many questions the index `index` answered with the holder of `year`."""

    index: str
    year: int
    correct: int
    asked: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.asked


def leader_questions(styles: Sequence[str] = ()) -> tuple[LeaderQuestion, ...]:
    """Every changed office in each of these ways of asking; without any, in all that fit both years.

    Raises InvalidRequest for a style that there is none of.
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
    return tuple(
        LeaderQuestion(one.question, one.style, {year: found[year][one.question].answers for year in YEARS})
        for one in both
        if not styles or one.style in styles
    )


def leaders_cells(
    index: str,
    asked: Sequence[LeaderQuestion],
    answer: Callable[[str], str],
    *,
    answered: Callable[[int], None] = lambda _: None,
) -> tuple[LeadersCell, ...]:
    """Ask every question once; the index's cell for each year. `answered` is told how many are done."""
    correct = dict.fromkeys(YEARS, 0)
    for number, question in enumerate(asked, start=1):
        given = answer(question.text)
        for year in YEARS:
            correct[year] += exact_match(given, question.answers[year])
        answered(number)
    return tuple(LeadersCell(index, year, correct[year], len(asked)) for year in YEARS)
