"""openbook bench swap, http"""

import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

from openbook.cli.client import quieten_libraries
from openbook.cli.index_build import IndexNumbers
from openbook.cli.options import folder_to_fill, group, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.entities import AnswerOptions, ModelKind
from openbook.settings import Settings
from openbook.storage.faiss_index import IndexType
from openbook_lab.benchmarks.engine_command import engine
from openbook_lab.benchmarks.precision_command import precision
from openbook_lab.evaluation.reports import ReportFiles

Serving = Annotated[
    Settings,
    *("checkpoint", "indexes", "index", "device", "dtype", "threads"),
    *("workers", "max_batch", "max_queue", "max_docs"),
]


@with_options
def swap(
    files: ReportFiles,
    passages: int = option(100_000, "N: passages of each of the two versions.", min=10),
    dimension: int = option(768, "d: length of a vector.", min=1),
    index_type: IndexType = option("flat", "flat or hnsw.", "--type"),
    swaps: int = option(4, "Swaps under each policy.", min=1),
    cold: bool = option(False, "Read the next version from the disk, not from what is cached.", "--cold/--no-cold"),
    folder: Path | None = option(
        None, "Make the temporary folder in this one: two versions must fit there.", callback=folder_to_fill
    ),
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
    files.show(report)


@with_options
def http(
    settings: Serving,
    files: ReportFiles,
    clients: tuple[int, ...] = option(
        (1, 2, 4, 8, 16), "Clients at once; give it again for more. Default: 1, 2, 4, 8, 16.", min=1
    ),
    seconds: float = option(5.0, "How long each number of clients asks in a round.", min=0.1),
    rounds: int = option(3, "Rounds of all numbers of clients.", min=1),
    questions: int = option(60, "Questions that one client asks in each way.", min=1),
    n_docs: int = option(5, "K: passages to retrieve and marginalise over.", min=1),
    model: ModelKind = option("token", "RAG-Token or RAG-Sequence."),
    num_beams: int = option(4, "Width of the beam search; 1 is greedy.", min=1),
    max_new_tokens: int = option(32, "Tokens of an answer at most.", min=1),
) -> None:
    """Measure what the application and HTTP add to a bare call of the engine, and the answers a second of many clients.

    The service runs in this process, its clients in another. The questions are the encyclopedia's, who leads; any
    index will do, since it is time that is measured.
    """
    import torch

    from openbook.api.app import create_app
    from openbook.api.composition import Services
    from openbook.api.server import serving
    from openbook_lab.benchmarks.http import ClientProcess, Subject, load_table, measure_load, measure_overhead
    from openbook_lab.evaluation.leaders import leader_questions
    from openbook_lab.evaluation.tables import Report, machine

    quieten_libraries()
    asked: dict[str, Any] = {"n_docs": n_docs, "model": model, "num_beams": num_beams, "max_new_tokens": max_new_tokens}
    texts = [one.text for one in leader_questions()]
    random.Random(0).shuffle(texts)
    bodies = [{"question": text, **asked} for text in texts]
    settings = settings.model_copy(update={"host": "127.0.0.1", "port": 0, "follow_s": 0.0})
    service = create_app(settings)
    with serving(service, settings) as port, ClientProcess(port, bodies) as asking, ProgressBar() as progress:
        services: Services = service.state.services
        subject = Subject(services.engine, services.live, services.answer_question, service.state.telemetry)
        overhead = measure_overhead(
            subject, asking, texts, AnswerOptions(**asked), rounds=questions, progress=progress.update
        )
        loads = measure_load(subject, asking, clients, seconds=seconds, rounds=rounds, progress=progress.update)
        index = services.live.now()
    report = Report(
        experiment="bench http",
        facts={
            "checkpoint": services.engine.checkpoint_name,
            "index": index.version if index is not None else "",
            **asked,
            "workers": settings.workers,
            "max_batch": settings.max_batch,
            "threads": torch.get_num_threads(),
            "dtype": settings.dtype,
            "machine": machine(),
        },
        tables=(overhead.table(), load_table(loads)),
    )
    files.show(report)


@with_options
def index(
    settings: Annotated[Settings, "indexes"],
    files: ReportFiles,
    of_index: IndexNumbers,
    passages: int = option(20_000, "N: random vectors with the structure of text.", min=1000),
    dimension: int = option(768, "d: length of a random vector.", min=2),
    vectors: Path | None = option(None, "Take the vectors of this .npy file (N, d) instead.", metavar="FILE"),
    version: str | None = option(None, "Take the vectors of this index version instead."),
    types: tuple[str, ...] = option(
        ("flat", "hnsw", "ivfpq"),
        "flat, hnsw, ivfpq or a FAISS factory string; may be given again. [default: all three]",
        "--type",
    ),
    questions: int = option(1000, "How many are asked.", min=20),
    threads: int | None = option(None, "Build with so many. [default: one a core]", min=1),
    folder: Path | None = option(
        None, "Keep vectors, indexes and figures here: a run that was stopped goes on.", callback=folder_to_fill
    ),
) -> None:
    """Measure index types side by side: build, size, memory, opening, latency at 1 and 8 threads, recall.

    Vectors are random ones with the structure of text, or real ones, of which some are kept out and asked. One million
    of 768 dimensions take 12 GB of disk and most of the time for HNSW's graph: --passages 1000000 --folder bench.
    """
    from openbook_lab.benchmarks.index import measure_indexes, specs
    from openbook_lab.benchmarks.index_vectors import prepare

    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="openbook-bench-")))
        progress = stack.enter_context(ProgressBar())
        if vectors is None and version is None:
            # a number that cannot be is found before anything is drawn
            specs(types, passages, dimension, of_index.numbers)
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
            specs(types, prepared.n_passages, prepared.dimension, of_index.numbers),
            origin=prepared.origin,
            n_threads=threads,
            progress=progress.update,
        )
    files.show(report)


app = group(
    "Measure what the service costs on this machine.",
    {"engine": engine, "precision": precision, "swap": swap, "http": http, "index": index},
)
