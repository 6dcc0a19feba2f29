"""Facts of countries, asked of the book of a year: each answer should be that book's, and not the other year's."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from openbook.errors import InvalidRequest
from openbook_lab.datasets.qa_metrics import exact_match, f1
from openbook_lab.encyclopedia import Question, load_world, questions
from openbook_lab.evaluation.leaders import YEARS
from openbook_lab.evaluation.statistics import bootstrap
from openbook_lab.evaluation.tables import Cell, Table, percent

OFFICE = "office"


@dataclass(frozen=True, slots=True)
class FactQuestion:
    """`answers` are those of the book that is asked; `other` those of the other year, none where they are the same."""

    text: str
    kind: str
    style: str
    answers: tuple[str, ...]
    other: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FactAnswers:
    """What an index answered to each question."""

    index: str
    questions: tuple[FactQuestion, ...]
    given: tuple[str, ...]


def fact_questions(
    year: int, *, kinds: Sequence[str] = (), styles: Sequence[str] = (), per_kind: int | None = None, seed: int = 0
) -> tuple[FactQuestion, ...]:
    """Every fact of this year's encyclopedia but who holds an office, or `per_kind` drawn of each kind.

    Raises InvalidRequest for a kind or a style that there is none of.
    """
    here = [one for one in questions(load_world(year)) if one.kind != OFFICE]
    elsewhere = {
        one.question: one.answers
        for other in YEARS
        if other != year
        for one in questions(load_world(other))
        if one.kind != OFFICE
    }
    _check("kind", kinds, {one.kind for one in here})
    _check("style", styles, {one.style for one in here})
    by_kind: dict[str, list[Question]] = {}
    for one in here:
        if (not kinds or one.kind in kinds) and (not styles or one.style in styles):
            by_kind.setdefault(one.kind, []).append(one)
    random_state = random.Random(seed)
    return tuple(
        FactQuestion(
            one.question, one.kind, one.style, one.answers, _unlike(elsewhere.get(one.question, ()), one.answers)
        )
        for of_kind in by_kind.values()
        for one in (of_kind if per_kind is None else random_state.sample(of_kind, min(per_kind, len(of_kind))))
    )


def ask_facts(
    index: str,
    asked: Sequence[FactQuestion],
    answer: Callable[[str], str],
    *,
    answered: Callable[[int], None] = lambda _: None,
) -> FactAnswers:
    """Ask every question once. `answered` is told how many are done."""
    given = []
    for number, question in enumerate(asked, start=1):
        given.append(answer(question.text))
        answered(number)
    return FactAnswers(index, tuple(asked), tuple(given))


def facts_tables(answers: Sequence[FactAnswers]) -> tuple[Table, Table]:
    """For each index all facts together, and each kind of fact."""
    columns = ("EM", "F1", "changed facts", "other year's answer to those")
    whole: list[tuple[Cell, ...]] = []
    by_kind: list[tuple[Cell, ...]] = []
    for one in answers:
        kinds = list(dict.fromkeys(question.kind for question in one.questions))
        means = [fmean(_matched(one, kind)) for kind in kinds]
        whole.append((one.index, len(one.questions), *_cells(one, None), 100 * fmean(means) if means else None))
        by_kind += [(one.index, kind, len(_matched(one, kind)), *_cells(one, kind)) for kind in kinds]
    return (
        Table("Facts of countries", ("index", "questions", *columns, "EM, mean over kinds"), tuple(whole)),
        Table("Facts of countries, by kind", ("index", "kind", "questions", *columns), tuple(by_kind)),
    )


def facts_misses(answers: Sequence[FactAnswers]) -> Table:
    """What was answered otherwise than the book has it."""
    return Table(
        "Misses",
        ("index", "kind", "question", "answer", "expected"),
        tuple(
            (one.index, question.kind, question.text, given, question.answers[0])
            for one in answers
            for question, given in zip(one.questions, one.given, strict=True)
            if not exact_match(given, question.answers)
        ),
    )


def _cells(answers: FactAnswers, kind: str | None) -> tuple[Cell, ...]:
    pairs = [
        (question, given)
        for question, given in zip(answers.questions, answers.given, strict=True)
        if kind in (None, question.kind)
    ]
    mistaken = [float(exact_match(given, question.other)) for question, given in pairs if question.other]
    return (
        percent(bootstrap([float(exact_match(given, question.answers)) for question, given in pairs])),
        percent(bootstrap([f1(given, question.answers) for question, given in pairs])),
        len(mistaken),
        percent(bootstrap(mistaken)),
    )


def _matched(answers: FactAnswers, kind: str) -> list[float]:
    return [
        float(exact_match(given, question.answers))
        for question, given in zip(answers.questions, answers.given, strict=True)
        if question.kind == kind
    ]


def _unlike(others: Sequence[str], answers: Sequence[str]) -> tuple[str, ...]:
    """The answers of the other year; none where one of them is an answer of this year too."""
    return () if any(exact_match(other, answers) for other in others) else tuple(others)


def _check(field: str, given: Sequence[str], known: set[str]) -> None:
    for one in given:
        if one not in known:
            raise InvalidRequest(field=field, reason=f"{one!r} is none of {', '.join(sorted(known))}")
