"""openbook eval leaders, facts: the encyclopedia's own questions, asked of its indexes"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

from openbook.cli.client import Answering, Body, RunningService, ServiceHere, quieten_libraries
from openbook.cli.options import environment_name, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.entities import AnswerOptions, ModelKind
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from openbook_lab.evaluation.reports import ReportFiles

if TYPE_CHECKING:
    from openbook_lab.evaluation.leaders import ShuffledBook

DEFAULTS = AnswerOptions()
DEMO_YEARS = {"wiki-2016": 2016, "wiki-2018": 2018}
SHUFFLED_YEAR = 2018

Computing = Annotated[Settings, "checkpoint", "indexes", "device", "dtype", "threads"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldQuestions(ReportFiles):
    """How questions are asked, and of which service."""

    url: str | None = option(
        None, "Ask the service there, swapping its index where another is to be asked; else in this process."
    )
    token: str | None = option(
        None, f"Its admin token, for swaps; without it, that of {environment_name('admin_token')}."
    )
    style: tuple[str, ...] = option((), "Way of asking, such as plain; give it again for more. Default: all.")
    seed: int = option(0, "What is drawn follows from it.")
    n_docs: int = option(DEFAULTS.n_docs, "K: passages to retrieve and marginalise over.")
    model: ModelKind = option(DEFAULTS.model, "RAG-Token or RAG-Sequence.")
    num_beams: int = option(1, "Width of the beam search; 1 is greedy.")

    @property
    def fields(self) -> Body:
        """Of the bodies of POST /answer."""
        return {"n_docs": self.n_docs, "model": self.model, "num_beams": self.num_beams}

    @contextmanager
    def asking(self, version: str, settings: Settings) -> "Iterator[Asker]":
        """Asks `version`. A running service that does not have it open swaps, and swaps back at the end."""
        if self.url is None:
            with ServiceHere(settings.model_copy(update={"index": version})) as here:
                yield Asker(here, version, self.fields)
            return
        token = self.token
        if token is None and settings.admin_token is not None:
            token = settings.admin_token.get_secret_value()
        service = RunningService(self.url, timeout_s=settings.timeout_s, token=token)
        asker = Asker(service, version, self.fields)
        open_now = service.get("/index")
        if version in (one["version"] for one in open_now["resident"]):
            yield asker
            return
        live = open_now["live"]
        if live is None:
            raise SettingInvalid(setting="--url", reason=f"the service at {self.url} has no live index")
        service.change("swap", {"version": version})
        try:
            yield asker
        finally:
            service.change("swap", {"version": live["version"]})

    def facts(self, checkpoint: str, started: float) -> Body:
        from openbook_lab.evaluation.tables import machine

        return {
            "checkpoint": checkpoint,
            **self.fields,
            "asked": "in process" if self.url is None else f"over HTTP at {self.url}",
            "machine": machine(),
            "seed": self.seed,
            "seconds": round(time.perf_counter() - started, 1),
        }


class Asker:
    """Asks one version of one service, and remembers which checkpoint answered."""

    def __init__(self, service: Answering, version: str, fields: Body) -> None:
        self._service = service
        self._fields = {"index": version, **fields}
        self.checkpoint = ""

    def __call__(self, question: str) -> str:
        response = self._service.answer({"question": question, **self._fields})
        self.checkpoint = str(response["checkpoint"])
        return str(response["answer"])


@with_options
def leaders(
    settings: Computing,
    options: WorldQuestions,
    index: tuple[str, ...] = option(
        tuple(DEMO_YEARS), "Version to ask; give it again for more. Default: wiki-2016, wiki-2018."
    ),
    sample: int | None = option(None, "So many questions of each style. Default: all.", min=1),
    shuffled: tuple[int, ...] = option(
        (),
        "Build the encyclopedia with its holders dealt out anew by this seed, and ask it too; with --url in the "
        "service's own --indexes, else in a temporary folder. Give it again for more.",
        metavar="SEED",
    ),
) -> None:
    """Ask who leads, of the offices that changed hands between 2016 and 2018 (the paper's section 4.5).

    Shows for each index how many answers are the holder of 2016 and of 2018: with the book of one year, the holders
    of that year should come back and those of the other should not.
    """
    from openbook_lab.evaluation.leaders import (
        OWN,
        ShuffledBook,
        ask_leaders,
        leader_questions,
        leaders_misses,
        leaders_tables,
    )
    from openbook_lab.evaluation.tables import Report

    questions = leader_questions(options.style, sample=sample, seed=options.seed)
    started = time.perf_counter()
    answers = []
    expected = {version: str(year) for version, year in DEMO_YEARS.items()}
    with ProgressBar() as progress, TemporaryDirectory() as temporary:
        asked = [(version, settings, questions) for version in index]
        elsewhere = settings if options.url is not None else settings.model_copy(update={"indexes": Path(temporary)})
        for number in shuffled:
            book = ShuffledBook(SHUFFLED_YEAR, number)
            _build(book, elsewhere, progress)
            asked.append((book.version, elsewhere, book.questions(questions)))
            expected[book.version] = OWN
        for version, where, of_version in asked:
            with options.asking(version, where) as asker:
                counted = _counted(progress, len(of_version), version)
                answers.append(ask_leaders(version, of_version, asker, answered=counted))
    misses = leaders_misses(answers, expected)
    options.show(Report("leaders", options.facts(asker.checkpoint, started), leaders_tables(answers), misses))


@with_options
def facts(
    settings: Computing,
    options: WorldQuestions,
    year: tuple[int, ...] = option(
        tuple(DEMO_YEARS.values()), "2016 or 2018: asks wiki-2016 or wiki-2018. Default: both."
    ),
    kind: tuple[str, ...] = option((), "Kind of fact, such as capital; give it again for more. Default: all."),
    sample: int = option(40, "So many questions of each kind of fact.", min=1),
) -> None:
    """Ask for facts of countries: capital, population, GDP and so on, of the book of each year.

    Shows how many answers are that book's, and, of the facts that changed, how many are the other year's.
    """
    from openbook_lab.evaluation.facts import ask_facts, fact_questions, facts_misses, facts_tables
    from openbook_lab.evaluation.tables import Report

    started = time.perf_counter()
    versions = {number: version for version, number in DEMO_YEARS.items()}
    questions = {
        one: fact_questions(one, kinds=kind, styles=options.style, per_kind=sample, seed=options.seed) for one in year
    }
    answers = []
    with ProgressBar() as progress:
        for one, asked in questions.items():
            version = versions[one]
            with options.asking(version, settings) as asker:
                answers.append(ask_facts(version, asked, asker, answered=_counted(progress, len(asked), version)))
    found = options.facts(asker.checkpoint, started)
    options.show(Report("facts", found, facts_tables(answers), facts_misses(answers)))


def _build(book: "ShuffledBook", settings: Settings, progress: ProgressBar) -> None:
    """Publish the book where it is to be asked, unless it is there."""
    from openbook.indexing.index_builder import build_index
    from openbook.indexing.passage_encoder import PassageEncoder
    from openbook.rag.checkpoint import choose_dtype

    store = IndexStore(settings.indexes)
    if book.version not in store.versions():
        quieten_libraries()
        encoder = PassageEncoder.load(dtype=choose_dtype("auto", "cpu"))
        build_index(store, book.version, book, encoder, report=progress)


def _counted(progress: ProgressBar, total: int, what: str) -> Callable[[int], None]:
    return lambda done: progress.update(done, total, what)
