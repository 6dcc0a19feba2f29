"""openbook eval leaders, facts: the encyclopedia's own questions, asked of its indexes"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from openbook.cli.client import Answering, Body, RunningService, ServiceHere, quieten_libraries
from openbook.cli.options import environment_name, takes_settings
from openbook.cli.progress import ProgressBar
from openbook.entities import AnswerOptions, ModelKind
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from openbook_lab.evaluation.reports import JsonFile, MarkdownFile, show

if TYPE_CHECKING:
    from openbook_lab.evaluation.leaders import ShuffledBook

DEFAULTS = AnswerOptions()
DEMO_YEARS = {"wiki-2016": 2016, "wiki-2018": 2018}
SHUFFLED_YEAR = 2018

Url = Annotated[
    str | None,
    typer.Option(help="Ask the service there, swapping its index where another is to be asked; else in this process."),
]
Token = Annotated[
    str | None, typer.Option(help=f"Its admin token, for swaps; without it, that of {environment_name('admin_token')}.")
]
Style = Annotated[
    list[str] | None, typer.Option(help="Way of asking, such as plain; give it again for more. Default: all.")
]
Seed = Annotated[int, typer.Option(help="What is drawn follows from it.")]
Docs = Annotated[int, typer.Option(help="K: passages to retrieve and marginalise over.")]
Model = Annotated[ModelKind, typer.Option(help="RAG-Token or RAG-Sequence.")]
Beams = Annotated[int, typer.Option(help="Width of the beam search; 1 is greedy.")]


@takes_settings("checkpoint", "indexes", "device", "dtype", "threads")
def leaders(
    settings: Settings,
    url: Url = None,
    token: Token = None,
    index: Annotated[
        list[str] | None, typer.Option(help="Version to ask; give it again for more. Default: wiki-2016, wiki-2018.")
    ] = None,
    style: Style = None,
    sample: Annotated[int | None, typer.Option(min=1, help="So many questions of each style. Default: all.")] = None,
    shuffled: Annotated[
        list[int] | None,
        typer.Option(
            metavar="SEED",
            help="Build the encyclopedia with its holders dealt out anew by this seed, and ask it too; with --url in "
            "the service's own --indexes, else in a temporary folder. Give it again for more.",
        ),
    ] = None,
    seed: Seed = 0,
    n_docs: Docs = DEFAULTS.n_docs,
    model: Model = DEFAULTS.model,
    num_beams: Beams = 1,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
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

    questions = leader_questions(style or (), sample=sample, seed=seed)
    started = time.perf_counter()
    fields = {"n_docs": n_docs, "model": model, "num_beams": num_beams}
    answers = []
    with ProgressBar() as progress, TemporaryDirectory() as temporary:
        asked = [(version, settings, questions) for version in index or DEMO_YEARS]
        elsewhere = settings if url is not None else settings.model_copy(update={"indexes": Path(temporary)})
        invented = []
        for number in shuffled or ():
            book = ShuffledBook(SHUFFLED_YEAR, number)
            _build(book, elsewhere, progress)
            asked.append((book.version, elsewhere, book.questions(questions)))
            invented.append(book.version)
        for version, where, of_version in asked:
            with _asking(version, where, url, token) as service:
                reader = Asker(service, version, fields)
                answers.append(
                    ask_leaders(version, of_version, reader, answered=_counted(progress, len(of_version), version))
                )
    facts = _facts(reader, fields, url) | {"seed": seed, "seconds": round(time.perf_counter() - started, 1)}
    expected = {version: str(year) for version, year in DEMO_YEARS.items()} | dict.fromkeys(invented, OWN)
    misses = leaders_misses(answers, expected)
    show(Report("leaders", facts, leaders_tables(answers), misses), json_file, markdown_file)


@takes_settings("checkpoint", "indexes", "device", "dtype", "threads")
def facts(
    settings: Settings,
    url: Url = None,
    token: Token = None,
    year: Annotated[
        list[int] | None, typer.Option(help="2016 or 2018: asks wiki-2016 or wiki-2018. Default: both.")
    ] = None,
    kind: Annotated[
        list[str] | None, typer.Option(help="Kind of fact, such as capital; give it again for more. Default: all.")
    ] = None,
    style: Style = None,
    sample: Annotated[int, typer.Option(min=1, help="So many questions of each kind of fact.")] = 40,
    seed: Seed = 0,
    n_docs: Docs = DEFAULTS.n_docs,
    model: Model = DEFAULTS.model,
    num_beams: Beams = 1,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Ask for facts of countries: capital, population, GDP and so on, of the book of each year.

    Shows how many answers are that book's, and, of the facts that changed, how many are the other year's.
    """
    from openbook_lab.evaluation.facts import ask_facts, fact_questions, facts_misses, facts_tables
    from openbook_lab.evaluation.tables import Report

    started = time.perf_counter()
    versions = {number: version for version, number in DEMO_YEARS.items()}
    questions = {
        one: fact_questions(one, kinds=kind or (), styles=style or (), per_kind=sample, seed=seed)
        for one in year or versions
    }
    fields = {"n_docs": n_docs, "model": model, "num_beams": num_beams}
    answers = []
    with ProgressBar() as progress:
        for one, asked in questions.items():
            version = versions[one]
            with _asking(version, settings, url, token) as service:
                reader = Asker(service, version, fields)
                answers.append(ask_facts(version, asked, reader, answered=_counted(progress, len(asked), version)))
    found = _facts(reader, fields, url) | {"seed": seed, "seconds": round(time.perf_counter() - started, 1)}
    show(Report("facts", found, facts_tables(answers), facts_misses(answers)), json_file, markdown_file)


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


@contextmanager
def _asking(version: str, settings: Settings, url: str | None, token: str | None) -> Iterator[Answering]:
    """Whoever answers from `version`. A running service that does not have it open swaps, and swaps back at the end."""
    if url is None:
        with ServiceHere(settings.model_copy(update={"index": version})) as here:
            yield here
        return
    if token is None and settings.admin_token is not None:
        token = settings.admin_token.get_secret_value()
    service = RunningService(url, timeout_s=settings.timeout_s, token=token)
    open_now = service.indexes()
    if version in (one["version"] for one in open_now["resident"]):
        yield service
        return
    live = open_now["live"]
    if live is None:
        raise SettingInvalid(setting="--url", reason=f"the service at {url} has no live index")
    service.swap({"version": version})
    try:
        yield service
    finally:
        service.swap({"version": live["version"]})


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


def _facts(reader: Asker, fields: Body, url: str | None) -> Body:
    from openbook_lab.evaluation.tables import machine

    asked = "in process" if url is None else f"over HTTP at {url}"
    return {"checkpoint": reader.checkpoint, **fields, "asked": asked, "machine": machine()}
