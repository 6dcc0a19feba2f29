"""Facts of countries, asked of the book of a year: an answer should be that book's, and not the other year's."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from openbook.cli.progress import ProgressBar
from openbook.settings import Settings
from openbook_lab.datasets.qa_metrics import exact_match, f1
from openbook_lab.encyclopedia import load_world, questions
from openbook_lab.evaluation.options import Options
from openbook_lab.evaluation.reports import Cell, Report, Rows, Table
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.world import YEARS, ask_world, check_known, world_facts

OFFICE = "office"


@dataclass(frozen=True, slots=True)
class FactQuestion:
    """`answers` are in the book that is asked, `other` in the other year's; none where one of them is in both."""

    text: str
    kind: str
    style: str
    answers: tuple[str, ...]
    other: tuple[str, ...]


# What an index answered to each question.
FactAnswers = Sequence[tuple[FactQuestion, str]]


def fact_questions(
    year: int, *, kinds: Sequence[str] = (), styles: Sequence[str] = (), per_kind: int | None = None, seed: int = 0
) -> tuple[FactQuestion, ...]:
    """Every fact of this year's encyclopedia except who holds an office, or `per_kind` drawn of each kind.

    Raises InvalidRequest for a kind or a style that does not exist.
    """
    here = [one for one in questions(load_world(year)) if one.kind != OFFICE]
    elsewhere = {
        one.question: one.answers
        for other in YEARS
        if other != year
        for one in questions(load_world(other))
        if one.kind != OFFICE
    }
    check_known("kind", kinds, {one.kind for one in here})
    check_known("style", styles, {one.style for one in here})
    by_kind: dict[str, list[FactQuestion]] = {}
    for one in here:
        if (not kinds or one.kind in kinds) and (not styles or one.style in styles):
            other = elsewhere.get(one.question, ())
            if any(exact_match(answer, one.answers) for answer in other):
                other = ()
            by_kind.setdefault(one.kind, []).append(
                FactQuestion(one.question, one.kind, one.style, one.answers, tuple(other))
            )
    random_state = random.Random(seed)
    return tuple(
        one
        for of_kind in by_kind.values()
        for one in (of_kind if per_kind is None else random_state.sample(of_kind, min(per_kind, len(of_kind))))
    )


def measure_facts(settings: Settings, options: Options) -> Report:
    """Facts of countries by the demo's version of each year."""
    started = time.perf_counter()
    questions = {
        f"wiki-{year}": fact_questions(
            int(year), kinds=options.kind, styles=options.style, per_kind=options.sample, seed=options.seed
        )
        for year in options.year
    }
    answers: dict[str, FactAnswers] = {}
    with ProgressBar() as progress:
        for version, asked in questions.items():
            checkpoint, answers[version] = ask_world(options, version, settings, asked, progress)
    return Report("facts", world_facts(options, checkpoint, started), facts_tables(answers), facts_misses(answers))


def facts_tables(answers: Mapping[str, FactAnswers]) -> tuple[Table, Table]:
    """For each index all facts together, and each kind of fact."""
    columns = ("EM", "F1", "changed facts", "other year's answer to those")
    whole: Rows = []
    by_kind: Rows = []
    for index, pairs in answers.items():
        kinds: dict[str, list[tuple[FactQuestion, str]]] = {}
        for question, given in pairs:
            kinds.setdefault(question.kind, []).append((question, given))
        means = [fmean(_right(of_kind)) for of_kind in kinds.values()]
        whole.append((index, len(pairs), *_cells(pairs), 100 * fmean(means) if means else None))
        by_kind += [(index, kind, len(of_kind), *_cells(of_kind)) for kind, of_kind in kinds.items()]
    return (
        Table("Facts of countries", ("index", "questions", *columns, "EM, mean over kinds"), whole),
        Table("Facts of countries, by kind", ("index", "kind", "questions", *columns), by_kind),
    )


def facts_misses(answers: Mapping[str, FactAnswers]) -> Table:
    """The answers that are not the book's."""
    rows: Rows = [
        (index, question.kind, question.text, given, question.answers[0])
        for index, pairs in answers.items()
        for question, given in pairs
        if not exact_match(given, question.answers)
    ]
    return Table("Misses", ("index", "kind", "question", "answer", "expected"), rows)


def _right(pairs: FactAnswers) -> list[bool]:
    return [exact_match(given, question.answers) for question, given in pairs]


def _cells(pairs: FactAnswers) -> tuple[Cell, ...]:
    """EM, F1, how many facts changed between the years, and the share of these with the other year's answer."""
    mistaken = [exact_match(given, question.other) for question, given in pairs if question.other]
    overlap = percent(f1(given, question.answers) for question, given in pairs)
    return percent(_right(pairs)), overlap, len(mistaken), percent(mistaken)
