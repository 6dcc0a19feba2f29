"""The paper's test of swapping (section 4.5): who leads, asked of the book of each year, and of invented books.

The questions are about offices with another holder in 2018 than in 2016, so that an answer shows its book: the book of
one year should give the answers of that year, and none of the other year. Where holders are shuffled between
countries, a generator can only read the answer, not know it.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from openbook.cli.client import quieten_libraries
from openbook.cli.progress import ProgressBar
from openbook.entities import Passage
from openbook.indexing.index_builder import build_index
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.rag.checkpoint import choose_dtype
from openbook.settings import Settings
from openbook.storage.opening import store_of
from openbook_lab.datasets.qa_metrics import exact_match
from openbook_lab.encyclopedia import articles, load_world, passages, questions, shuffled
from openbook_lab.encyclopedia.world import DEMO_YEARS
from openbook_lab.evaluation.options import Options
from openbook_lab.evaluation.reports import Cell, Report, Rows, Table
from openbook_lab.evaluation.statistics import percent
from openbook_lab.evaluation.world import YEARS, ask_world, check_known, world_facts

# Names the holders of an invented book, as "2016" names the holders of 2016.
OWN = "the book's own"
SHUFFLED_YEAR = 2018


@dataclass(frozen=True, slots=True)
class LeaderQuestion:
    """One way of asking who holds an office. `answers` are the accepted forms of the holder's name: under "2016", under
    "2018" and, in an invented book, under OWN."""

    text: str
    style: str
    answers: Mapping[str, tuple[str, ...]]


# What an index answered to each question.
LeaderAnswers = Sequence[tuple[LeaderQuestion, str]]


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


class ShuffledBook:
    """The encyclopedia of a year with its holders and facts shuffled by `seed`: a source of passages."""

    licence = "Apache-2.0"
    snapshot_date: str | None = None

    def __init__(self, year: int, seed: int) -> None:
        self._world = shuffled(load_world(year), seed)
        self.name = f"Openbook's encyclopedia of {year}, shuffled by {seed}"
        self.version = f"shuffled-{year}-{seed}"

    def passages(self) -> Iterator[Passage]:
        yield from passages(articles(self._world))

    def questions(self, asked: Sequence[LeaderQuestion]) -> tuple[LeaderQuestion, ...]:
        """The questions with this book's holder, but for holders of 2016 or 2018."""
        here = {one.question: one.answers for one in questions(self._world) if one.kind == "office"}
        return tuple(
            replace(one, answers={**one.answers, OWN: here[one.text]})
            for one in asked
            if one.text in here
            and not any(exact_match(name, here[one.text]) for names in one.answers.values() for name in names)
        )


def measure_leaders(settings: Settings, options: Options) -> Report:
    """Who leads by each of the versions, and by the book of each seed `shuffled`, built unless it is there."""
    questions = leader_questions(options.style, sample=options.sample, seed=options.seed)
    started = time.perf_counter()
    answers: dict[str, LeaderAnswers] = {}
    expected = {version: str(year) for version, year in DEMO_YEARS.items()}
    with ProgressBar() as progress, TemporaryDirectory() as temporary:
        asked = [(version, settings, questions) for version in options.versions]
        elsewhere = settings if options.url is not None else settings.model_copy(update={"indexes": Path(temporary)})
        for seed in options.shuffled:
            book = ShuffledBook(SHUFFLED_YEAR, seed)
            store = store_of(elsewhere)
            if book.version not in store.versions():
                quieten_libraries()
                encoder = PassageEncoder.load(dtype=choose_dtype("auto", "cpu"))
                build_index(store, book.version, book, encoder, report=progress)
            asked.append((book.version, elsewhere, book.questions(questions)))
            expected[book.version] = OWN
        for version, where, of_version in asked:
            checkpoint, answers[version] = ask_world(options, version, where, of_version, progress)
    facts = world_facts(options, checkpoint, started)
    return Report("leaders", facts, leaders_tables(answers), leaders_misses(answers, expected))


def leaders_tables(answers: Mapping[str, LeaderAnswers]) -> tuple[Table, Table]:
    """Which holders each index answered with: over all questions, and for each style of asking."""
    every = list(
        dict.fromkeys(name for pairs in answers.values() for question, _ in pairs for name in question.answers)
    )
    columns = (*(f"holder: {name}" for name in every), "questions")
    whole: Rows = []
    by_style: Rows = []
    for index, pairs in answers.items():
        whole.append((index, *_cells(pairs, every)))
        for style in dict.fromkeys(question.style for question, _ in pairs):
            of_style = [(question, given) for question, given in pairs if question.style == style]
            by_style.append((index, style, *_cells(of_style, every)))
    return (
        Table("Who leads", ("index", *columns), whole),
        Table("Who leads, by way of asking", ("index", "style", *columns), by_style),
    )


def leaders_misses(answers: Mapping[str, LeaderAnswers], expected: Mapping[str, str]) -> Table:
    """The answers that are not the holder `expected` of their index."""
    rows: Rows = [
        (index, question.text, given, question.answers[expected[index]][0])
        for index, pairs in answers.items()
        if index in expected
        for question, given in pairs
        if not exact_match(given, question.answers[expected[index]])
    ]
    return Table("Misses", ("index", "question", "answer", "expected"), rows)


def _cells(pairs: LeaderAnswers, every: Sequence[str]) -> tuple[Cell, ...]:
    """The share of each holder, then how many questions. A book without holders of its own leaves their cell empty."""
    shares = [
        percent(exact_match(given, question.answers[name]) for question, given in pairs)
        if all(name in question.answers for question, _ in pairs)
        else None
        for name in every
    ]
    return *shares, len(pairs)
