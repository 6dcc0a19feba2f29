"""Facts of countries, asked of the book of a year: an answer should be that book's, and not the other year's."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from openbook_lab.datasets.qa_metrics import exact_match, f1
from openbook_lab.encyclopedia import load_world, questions
from openbook_lab.evaluation.leaders import YEARS, ask_texts, check_known
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.tables import Cell, Rows, Table

OFFICE = "office"


@dataclass(frozen=True, slots=True)
class FactQuestion:
    """`answers` are in the book that is asked, `other` in the other year's; none where one of them is in both."""

    text: str
    kind: str
    style: str
    answers: tuple[str, ...]
    other: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FactAnswers:
    """What an index answered to each question."""

    index: str
    pairs: tuple[tuple[FactQuestion, str], ...]

    def of(self, kind: str) -> "FactAnswers":
        """The questions about one kind of fact."""
        return FactAnswers(self.index, tuple(pair for pair in self.pairs if pair[0].kind == kind))

    def right(self) -> list[bool]:
        """For each question, whether the answer is the book's."""
        return [exact_match(given, question.answers) for question, given in self.pairs]

    def cells(self) -> tuple[Cell, ...]:
        """EM, F1, how many facts changed between the years, and the share of these with the other year's answer."""
        mistaken = [exact_match(given, question.other) for question, given in self.pairs if question.other]
        overlap = percent(f1(given, question.answers) for question, given in self.pairs)
        return percent(self.right()), overlap, len(mistaken), percent(mistaken)


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


def ask_facts(
    index: str,
    asked: Sequence[FactQuestion],
    answer: Callable[[str], str],
    *,
    answered: Callable[[int], None] = lambda _: None,
) -> FactAnswers:
    """Ask every question once. `answered` receives the number of questions done."""
    given = ask_texts([question.text for question in asked], answer, answered)
    return FactAnswers(index, tuple(zip(asked, given, strict=True)))


def facts_tables(answers: Sequence[FactAnswers]) -> tuple[Table, Table]:
    """For each index all facts together, and each kind of fact."""
    columns = ("EM", "F1", "changed facts", "other year's answer to those")
    whole: Rows = []
    by_kind: Rows = []
    for one in answers:
        kinds = {kind: one.of(kind) for kind in dict.fromkeys(question.kind for question, _ in one.pairs)}
        means = [fmean(of_kind.right()) for of_kind in kinds.values()]
        whole.append((one.index, len(one.pairs), *one.cells(), 100 * fmean(means) if means else None))
        by_kind += [(one.index, kind, len(of_kind.pairs), *of_kind.cells()) for kind, of_kind in kinds.items()]
    return (
        Table("Facts of countries", ("index", "questions", *columns, "EM, mean over kinds"), tuple(whole)),
        Table("Facts of countries, by kind", ("index", "kind", "questions", *columns), tuple(by_kind)),
    )


def facts_misses(answers: Sequence[FactAnswers]) -> Table:
    """The answers that are not the book's."""
    return Table(
        "Misses",
        ("index", "kind", "question", "answer", "expected"),
        tuple(
            (one.index, question.kind, question.text, given, question.answers[0])
            for one in answers
            for (question, given), right in zip(one.pairs, one.right(), strict=True)
            if not right
        ),
    )
