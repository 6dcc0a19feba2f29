"""openbook eval leaders"""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from service.cli.client import Answering, RunningService, ServiceHere
from service.cli.consoles import ProgressBar, output, print_json
from service.cli.options import takes_settings
from service.entities import AnswerOptions, ModelKind
from service.errors import SettingInvalid
from service.settings import Settings

app = typer.Typer(no_args_is_help=True, help="Measure how well the service answers.")

DEFAULTS = AnswerOptions()
DEMO_VERSIONS = ("wiki-2016", "wiki-2018")


@app.callback()
def evaluate() -> None:
    """Measure how well the service answers."""


@app.command()
@takes_settings("checkpoint", "indexes", "device", "dtype", "threads")
def leaders(
    settings: Settings,
    url: Annotated[
        str | None,
        typer.Option(help="Ask the service there, swapping its index (OPENBOOK_ADMIN_TOKEN); else in this process."),
    ] = None,
    index: Annotated[
        list[str] | None, typer.Option(help="Version to ask; give it again for more. Default: wiki-2016, wiki-2018.")
    ] = None,
    style: Annotated[
        list[str] | None, typer.Option(help="Way of asking, such as plain; give it again for more. Default: all.")
    ] = None,
    n_docs: Annotated[int, typer.Option(help="K: passages to retrieve and marginalise over.")] = DEFAULTS.n_docs,
    model: Annotated[ModelKind, typer.Option(help="RAG-Token or RAG-Sequence.")] = DEFAULTS.model,
    num_beams: Annotated[int, typer.Option(help="Width of the beam search; 1 is greedy.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Ask who leads, of the offices that changed hands between 2016 and 2018 (the paper's section 4.5).

    Shows for each index how many answers are the holder of 2016 and of 2018: with the book of one year, the holders
    of that year should come back and those of the other should not.
    """
    from service.offline.evaluation import LeadersCell, leader_questions, leaders_cells

    questions = leader_questions(style or ())
    fields = {"n_docs": n_docs, "model": model, "num_beams": num_beams}

    def cells_of(version: str) -> tuple[LeadersCell, ...]:
        with _reading(version, settings, url) as service:
            return leaders_cells(
                version,
                questions,
                lambda question: str(service.answer({"question": question, **fields})["answer"]),
                answered=lambda done: progress.update(done, len(questions), version),
            )

    with ProgressBar() as progress:
        cells = [cell for version in index or DEMO_VERSIONS for cell in cells_of(version)]
    if as_json:
        print_json([dataclasses.asdict(cell) | {"accuracy": cell.accuracy} for cell in cells])
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("index")
    for year in dict.fromkeys(cell.year for cell in cells):
        table.add_column(f"holder of {year}", justify="right")
    for version in dict.fromkeys(cell.index for cell in cells):
        row = [f"{cell.accuracy:.1%} ({cell.correct}/{cell.asked})" for cell in cells if cell.index == version]
        table.add_row(version, *row)
    output().print(table)


@contextmanager
def _reading(version: str, settings: Settings, url: str | None) -> Iterator[Answering]:
    """Whoever answers from `version`. A running service goes back to the index that it had."""
    if url is None:
        with ServiceHere(settings.model_copy(update={"index": version})) as here:
            yield here
        return
    token = settings.admin_token.get_secret_value() if settings.admin_token is not None else None
    service = RunningService(url, timeout_s=settings.timeout_s, token=token)
    live = service.indexes()["live"]
    if live is None:
        raise SettingInvalid(setting="--url", reason=f"the service at {url} has no live index")
    service.swap({"version": version})
    try:
        yield service
    finally:
        service.swap({"version": live["version"]})
