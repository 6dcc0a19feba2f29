"""The paper's test of swapping (section 4.5): who leads, asked of the book of each year.

The questions are about offices with another holder in 2018 than in 2016, so that an answer shows its book: the book of
one year should give the answers of that year, and none of the other year.
"""

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from openbook.cli.client import Answering, ServiceHere, revealed, running_service
from openbook.cli.progress import ProgressBar
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook_client import calls
from openbook_lab.datasets.qa_metrics import exact_match
from openbook_lab.encyclopedia import load_world, questions
from openbook_lab.encyclopedia.world import DEMO_YEARS
from openbook_lab.evaluation.options import Options
from openbook_lab.evaluation.reports import Facts, Report, Rows, Table, run_facts
from openbook_lab.evaluation.statistics import Interval, percent

YEARS = tuple(DEMO_YEARS.values())


@dataclass(frozen=True, slots=True)
class LeaderQuestion:
    """One way of asking who holds an office. `answers` are the accepted forms of the holder's name by year."""

    text: str
    style: str
    answers: Mapping[str, tuple[str, ...]]


# What an index answered to each question.
LeaderAnswers = Sequence[tuple[LeaderQuestion, str]]


def leader_questions(*, sample: int | None = None, seed: int = 0) -> tuple[LeaderQuestion, ...]:
    """Every changed office in all styles that fit both years; `sample` draws as many of each style."""
    found = {year: {one.question: one for one in questions(load_world(year)) if one.kind == "office"} for year in YEARS}
    first, last = (found[year] for year in YEARS)
    # a question that names the year of taking office, or a title that also changed, fits one year only
    both = [one for text, one in first.items() if text in last and last[text].answers != one.answers]
    random_state = random.Random(seed)
    kept: set[str] = set()
    for style in sorted({one.style for one in both}):
        of_style = [one.question for one in both if one.style == style]
        kept.update(of_style if sample is None else random_state.sample(of_style, min(sample, len(of_style))))
    return tuple(
        LeaderQuestion(one.question, one.style, {str(year): found[year][one.question].answers for year in YEARS})
        for one in both
        if one.question in kept
    )


def measure_leaders(settings: Settings, options: Options) -> Report:
    """Who leads by each of the versions."""
    started = time.perf_counter()
    questions = leader_questions(sample=options.sample, seed=options.seed)
    answers: dict[str, LeaderAnswers] = {}
    fields: calls.CompareOptions = {
        "n_docs": options.n_docs,
        "model": options.one_model,
        "num_beams": options.num_beams,
        # an answer that is withheld could be neither right nor wrong
        "abstain": "never",
    }
    with ProgressBar() as progress:
        for version in options.versions:
            given = []
            with _service(options, version, settings) as service:
                for number, question in enumerate(questions, start=1):
                    answer = service.answer(question.text, index=version, **fields)
                    given.append((question, str(answer.answer)))
                    progress.update(number, len(questions), version)
            answers[version] = given
    facts: Facts = {
        "checkpoint": answer.checkpoint,
        "K": options.n_docs,
        "model": options.one_model,
        "num_beams": options.num_beams,
        "asked": "in process" if options.url is None else f"over HTTP at {options.url}",
        "seed": options.seed,
        **run_facts(started),
    }
    return Report("leaders", facts, leaders_tables(answers))


@contextmanager
def _service(options: Options, version: str, settings: Settings) -> Iterator[Answering]:
    """A service that has `version` open. A running one that does not swaps, and swaps back at the end."""
    if options.url is None:
        with ServiceHere(settings.model_copy(update={"index": version})) as here:
            yield here
        return
    token = revealed(settings.admin_token)
    with running_service(options.url, timeout_s=settings.timeout_s, token=token) as service:
        open_now = service.index()
        if version in (one.version for one in open_now.resident):
            yield service
            return
        live = open_now.live
        if live is None:
            raise SettingInvalid(setting="--url", reason=f"the service at {options.url} has no live index")
        service.swap(version)
        try:
            yield service
        finally:
            service.swap(live.version)


def leaders_tables(answers: Mapping[str, LeaderAnswers]) -> tuple[Table, Table]:
    """Which holders each index answered with: over all questions, and for each style of asking."""
    columns = (*(f"holder: {year}" for year in YEARS), "questions")
    whole: Rows = []
    by_style: Rows = []
    for index, pairs in answers.items():
        whole.append((index, *_shares(pairs), len(pairs)))
        for style in dict.fromkeys(question.style for question, _ in pairs):
            of_style = [(question, given) for question, given in pairs if question.style == style]
            by_style.append((index, style, *_shares(of_style), len(of_style)))
    return (
        Table("Who leads", ("index", *columns), whole),
        Table("Who leads, by way of asking", ("index", "style", *columns), by_style),
    )


def _shares(pairs: LeaderAnswers) -> list[Interval]:
    """How many answers are the holder of each year."""
    return [percent(exact_match(given, question.answers[str(year)]) for question, given in pairs) for year in YEARS]
