"""openbook bench swap, http"""

import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from openbook.cli.client import quieten_libraries
from openbook.cli.index_options import Numbers, takes_index_numbers
from openbook.cli.options import takes_settings
from openbook.cli.places import folder_to_fill
from openbook.cli.progress import ProgressBar
from openbook.entities import AnswerOptions, ModelKind
from openbook.settings import Settings
from openbook.storage.faiss_index import IndexType
from openbook_lab.benchmarks.engine_command import engine
from openbook_lab.benchmarks.precision_command import precision
from openbook_lab.evaluation.reports import JsonFile, MarkdownFile, show

DEFAULT_CLIENTS = (1, 2, 4, 8, 16)

app = typer.Typer(no_args_is_help=True, help="Measure what the service costs on this machine.")


@app.callback()
def bench() -> None:
    """Measure what the service costs on this machine."""


_ENGINE = app.command()(engine)
_PRECISION = app.command()(precision)


@app.command()
def swap(
    passages: Annotated[int, typer.Option(min=10, help="N: passages of each of the two versions.")] = 100_000,
    dimension: Annotated[int, typer.Option(min=1, help="d: length of a vector.")] = 768,
    index_type: Annotated[IndexType, typer.Option("--type", help="flat or hnsw.")] = "flat",
    swaps: Annotated[int, typer.Option(min=1, help="Swaps under each policy.")] = 4,
    cold: Annotated[bool, typer.Option(help="Read the next version from the disk, not from what is cached.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            callback=folder_to_fill, help="Make the temporary folder in this one: two versions must fit there."
        ),
    ] = None,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Measure a swap between two synthetic versions: its stages, the pause that readers see, memory at each stage.

    A version takes 4 N d bytes of vectors and about 700 bytes of text a passage, on the disk and in memory; building
    one takes twice that. One million passages of 768 dimensions: --passages 1000000.
    """
    from openbook_lab.benchmarks.swap import measure_swaps
    from openbook_lab.benchmarks.synthetic import build_versions

    with tempfile.TemporaryDirectory(prefix="openbook-bench-", dir=folder) as made, ProgressBar() as progress:
        store = build_versions(Path(made), passages, dimension, index_type, progress.update)
        report = measure_swaps(store, swaps=swaps, cold=cold, progress=progress.update)
    show(report, json_file, markdown_file)


@app.command()
@takes_settings(
    "checkpoint", "indexes", "index", "device", "dtype", "threads", "workers", "max_batch", "max_queue", "max_docs"
)
def http(
    settings: Settings,
    clients: Annotated[
        list[int] | None, typer.Option(min=1, help="Clients at once; give it again for more. Default: 1, 2, 4, 8, 16.")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each number of clients asks in a round.")] = 5.0,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of all numbers of clients.")] = 3,
    questions: Annotated[int, typer.Option(min=1, help="Questions that one client asks in each way.")] = 60,
    n_docs: Annotated[int, typer.Option(min=1, help="K: passages to retrieve and marginalise over.")] = 5,
    model: Annotated[ModelKind, typer.Option(help="RAG-Token or RAG-Sequence.")] = "token",
    num_beams: Annotated[int, typer.Option(min=1, help="Width of the beam search; 1 is greedy.")] = 4,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Tokens of an answer at most.")] = 32,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Measure what the application and HTTP add to a bare call of the engine, and the answers a second of many clients.

    The service runs in this process, its clients in another. The questions are the encyclopedia's, who leads; any
    index will do, since it is time that is measured.
    """
    from openbook.api.app import create_app
    from openbook.api.composition import Services
    from openbook.api.server import serving
    from openbook_lab.benchmarks.http import ClientProcess, Subject, load_table, measure_load, measure_overhead
    from openbook_lab.evaluation.leaders import leader_questions
    from openbook_lab.evaluation.tables import Report, machine

    quieten_libraries()
    options = AnswerOptions(n_docs=n_docs, model=model, num_beams=num_beams, max_new_tokens=max_new_tokens)
    texts = [one.text for one in leader_questions()]
    random.Random(0).shuffle(texts)
    asked = {"n_docs": n_docs, "model": model, "num_beams": num_beams, "max_new_tokens": max_new_tokens}
    bodies = [{"question": text, **asked} for text in texts]
    settings = settings.model_copy(update={"host": "127.0.0.1", "port": 0, "follow_s": 0.0})
    service = create_app(settings)
    with serving(service, settings) as port, ClientProcess(port, bodies) as asking, ProgressBar() as progress:
        services: Services = service.state.services
        subject = Subject(services.engine, services.live, services.answer_question, service.state.telemetry)
        overhead = measure_overhead(subject, asking, texts, options, rounds=questions, progress=progress.update)
        loads = measure_load(
            subject, asking, clients or DEFAULT_CLIENTS, seconds=seconds, rounds=rounds, progress=progress.update
        )
        index = services.live.now()
    report = Report(
        experiment="bench http",
        facts={
            "checkpoint": services.engine.checkpoint_name,
            "index": index.version if index is not None else "",
            **asked,
            "workers": settings.workers,
            "max_batch": settings.max_batch,
            "threads": torch_threads(),
            "dtype": settings.dtype,
            "machine": machine(),
        },
        tables=(overhead.table(), load_table(loads)),
    )
    show(report, json_file, markdown_file)


def torch_threads() -> int:
    """Threads of one computation, as they turned out."""
    import torch

    return torch.get_num_threads()


@app.command()
@takes_settings("indexes")
@takes_index_numbers
def index(
    settings: Settings,
    numbers: Numbers,
    passages: Annotated[int, typer.Option(min=1000, help="N: random vectors with the structure of text.")] = 20_000,
    dimension: Annotated[int, typer.Option(min=2, help="d: length of a random vector.")] = 768,
    vectors: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take the vectors of this .npy file (N, d) instead.")
    ] = None,
    version: Annotated[str | None, typer.Option(help="Take the vectors of this index version instead.")] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", help="flat, hnsw, ivfpq or a FAISS factory string; may be given again. [default: all three]"
        ),
    ] = None,
    questions: Annotated[int, typer.Option(min=20, help="How many are asked.")] = 1000,
    threads: Annotated[int | None, typer.Option(min=1, help="Build with so many. [default: one a core]")] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            callback=folder_to_fill, help="Keep vectors, indexes and figures here: a run that was stopped goes on."
        ),
    ] = None,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Measure index types side by side: build, size, memory, opening, latency at 1 and 8 threads, recall.

    Vectors are random ones with the structure of text, or real ones, of which some are kept out and asked. One million
    of 768 dimensions take 12 GB of disk and most of the time for HNSW's graph: --passages 1000000 --folder bench.
    """
    from openbook_lab.benchmarks.index import measure_indexes, specs
    from openbook_lab.benchmarks.index_vectors import prepare

    wanted = types or ["flat", "hnsw", "ivfpq"]
    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="openbook-bench-")))
        progress = stack.enter_context(ProgressBar())
        if vectors is None and version is None:
            # a number that cannot be is found before anything is drawn
            specs(wanted, passages, dimension, numbers)
        prepared = prepare(
            place,
            passages=passages,
            dimension=dimension,
            n_questions=questions,
            file=vectors,
            version=version,
            indexes=settings.indexes,
            progress=progress.update,
        )
        report = measure_indexes(
            place,
            prepared.places,
            specs(wanted, prepared.n_passages, prepared.dimension, numbers),
            origin=prepared.origin,
            n_threads=threads,
            progress=progress.update,
        )
    show(report, json_file, markdown_file)
