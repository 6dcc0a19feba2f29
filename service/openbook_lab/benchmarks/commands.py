"""openbook bench: engine, swap, http, index"""

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from openbook.cli.index_build import IndexNumbers
from openbook.cli.options import folder_to_fill, group, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.settings import Settings
from openbook.storage.faiss_index import IndexType
from openbook.storage.index_store import IndexStore
from openbook.storage.opening import store_of
from openbook_lab.benchmarks.http import Clients
from openbook_lab.benchmarks.index_vectors import VectorsAsked
from openbook_lab.benchmarks.names import CONTESTANTS, MODES, SHAPES, chosen, numbers
from openbook_lab.evaluation.reports import ReportFiles

Serving = Annotated[
    Settings,
    *("checkpoint", "indexes", "index", "device", "dtype", "threads"),
    *("workers", "max_batch", "max_queue"),
]


@with_options
def engine(
    settings: Annotated[Settings, "checkpoint"],
    files: ReportFiles,
    shapes: str = option(
        "mini,bart-large", "mini: the checkpoint. bart-large: BERT-base and BART-large, random weights."
    ),
    modes: str = option(
        "token greedy,token stepwise,token beams,sequence thorough,sequence fast",
        "Of: token greedy, token stepwise (greedy without reading ahead; ours alone), token beams, sequence thorough, "
        "sequence fast.",
    ),
    contestants: str = option(
        "openbook float32,openbook bfloat16,openbook int8,transformers float32,transformers bfloat16",
        "Of: openbook float32 | bfloat16 | int8, transformers float32 | bfloat16.",
    ),
    threads: str = option("1,2", "Numbers of threads."),
    repeats: int = option(3, "Answers to each at least; the fastest counts.", min=1),
    n_docs: int = option(5, "K: passages.", min=1),
    num_beams: int = option(4, "Beams, where they are not one.", min=2),
    folder: Path | None = option(None, "Where the random weights are written: 2 GB.", callback=folder_to_fill),
) -> None:
    """Measure an answer of the engine beside transformers' own RAG: same weights, same work, in the same run.

    A passage has 160 tokens with its question, and an answer 16: none ends before.
    Lists are separated by commas, and the first word of several names stands for all of them: "openbook,transformers".
    Each contestant has a process of its own, and all are in memory at once: 8 GB for bart-large. Turns go on until
    the fastest times agree within 5 %, at most four times --repeats.
    """
    from openbook_lab.benchmarks.children import in_child
    from openbook_lab.benchmarks.engine import Plan, measure_engine
    from openbook_lab.benchmarks.engine_work import Work, write_shapes

    plan = Plan(
        contestants=chosen(contestants, CONTESTANTS, "--contestants"),
        modes=chosen(modes, MODES, "--modes"),
        threads=numbers(threads, "--threads"),
        repeats=repeats,
        work=Work(n_docs=n_docs, num_beams=num_beams),
    )
    names = chosen(shapes, SHAPES, "--shapes")
    with tempfile.TemporaryDirectory(prefix="openbook-bench-", dir=folder) as made, ProgressBar() as progress:
        # a child writes them: the peak memory of a process also counts for the processes that it starts
        folders = in_child(progress.update, write_shapes, names, Path(made), Path(settings.checkpoint))
        report = measure_engine(folders, plan, progress.update)
    files.show(report)


@with_options
def swap(
    settings: Annotated[Settings, "indexes"],
    files: ReportFiles,
    passages: int = option(100_000, "N: passages of each of the two versions.", min=10),
    dimension: int = option(768, "d: length of a vector.", min=1),
    index_type: IndexType = option("flat", "flat or hnsw.", "--type"),
    swaps: int = option(4, "Swaps under each policy.", min=1),
    quiet: float = option(1.0, "Seconds of reading without a swap, at least.", min=0.1),
    version: str | None = option(
        None,
        "Swap between two names of this index version instead: each has an index of its own, vectors and passages are "
        "links.",
    ),
    cold: bool = option(False, "Read the next version from the disk, not from what is cached.", "--cold/--no-cold"),
    folder: Path | None = option(
        None,
        "Make the temporary folder in this one: two versions must fit there. With --version, one on its file system.",
        callback=folder_to_fill,
    ),
) -> None:
    """Measure a swap between two synthetic versions: its stages, the pause that readers see, memory at each stage.

    A version takes 4 N d bytes of vectors and about 700 bytes of text a passage, on the disk and in memory; building
    one takes twice that. One million passages of 768 dimensions: --passages 1000000.
    """
    from openbook_lab.benchmarks.children import in_child
    from openbook_lab.benchmarks.swap import measure_swaps
    from openbook_lab.benchmarks.synthetic import build_versions, link_twins

    with tempfile.TemporaryDirectory(prefix="openbook-bench-", dir=folder) as made, ProgressBar() as progress:
        if version is not None:
            link_twins(Path(made), store_of(settings), version)
        else:
            # a child builds them, so that its memory is not measured
            in_child(progress.update, build_versions, Path(made), passages, dimension, index_type)
        report = measure_swaps(IndexStore(Path(made)), swaps=swaps, cold=cold, quiet_s=quiet, progress=progress.update)
    files.show(report)


@with_options
def http(settings: Serving, files: ReportFiles, clients: Clients) -> None:
    """Measure what HTTP adds to a bare call of the engine, and the answers a second of many clients.

    The service runs in this process, its clients in another. The questions are the encyclopedia's, who leads; any
    index will do, since it is time that is measured.
    """
    from openbook_lab.benchmarks.http import measure_http

    files.show(measure_http(settings, clients))


@with_options
def index(
    settings: Annotated[Settings, "indexes"],
    files: ReportFiles,
    of_index: IndexNumbers,
    vectors: VectorsAsked,
    types: tuple[str, ...] = option(
        ("flat", "hnsw", "ivfpq"),
        "flat, hnsw, ivfpq or a FAISS factory string; may be given again. [default: all three]",
        "--type",
    ),
    threads: int | None = option(None, "Build with so many. [default: one a core]", min=1),
    cold: bool = option(
        False, "Also ask each question once before its pages are in memory: from the disk.", "--cold/--no-cold"
    ),
    folder: Path | None = option(
        None, "Keep vectors, indexes and figures here: a run that was stopped goes on.", callback=folder_to_fill
    ),
) -> None:
    """Measure index types side by side: build, size, memory, opening, latency at 1 and 8 threads, recall.

    Vectors are random ones with the structure of text, or real ones, of which some are kept out and asked. One million
    of 768 dimensions take 12 GB of disk and most of the time for HNSW's graph: --passages 1000000 --folder bench.
    """
    from openbook_lab.benchmarks.index import measure_indexes, specs

    with ExitStack() as stack:
        place = folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="openbook-bench-")))
        progress = stack.enter_context(ProgressBar()).update
        if vectors.version is None:
            # a number that cannot be is found before anything is drawn
            specs(types, vectors.passages, vectors.dimension, of_index.numbers)
        places = vectors.prepare(place, store_of(settings).folder, progress)
        chosen_specs = specs(types, *places.shape, of_index.numbers)
        report = measure_indexes(place, places, chosen_specs, threads, progress, cold)
    files.show(report)


app = group(
    "Measure what the service costs on this machine.",
    {
        "engine": engine,
        "swap": swap,
        "http": http,
        "index": index,
    },
)
