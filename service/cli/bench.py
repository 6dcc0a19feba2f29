"""openbook bench swap"""

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from service.cli.consoles import ProgressBar
from service.cli.reports import JsonFile, MarkdownFile, show
from service.storage.faiss_index import IndexType

app = typer.Typer(no_args_is_help=True, help="Measure what the service costs on this machine.")


@app.callback()
def bench() -> None:
    """Measure what the service costs on this machine."""


@app.command()
def swap(
    passages: Annotated[int, typer.Option(min=10, help="N: passages of each of the two versions.")] = 100_000,
    dimension: Annotated[int, typer.Option(min=1, help="d: length of a vector.")] = 768,
    index_type: Annotated[IndexType, typer.Option("--type", help="flat or hnsw.")] = "flat",
    swaps: Annotated[int, typer.Option(min=1, help="Swaps under each policy.")] = 4,
    cold: Annotated[bool, typer.Option(help="Read the next version from the disk, not from what is cached.")] = False,
    folder: Annotated[
        Path | None, typer.Option(help="Make the temporary folder in this one: two versions must fit there.")
    ] = None,
    json_file: JsonFile = None,
    markdown_file: MarkdownFile = None,
) -> None:
    """Measure a swap between two synthetic versions: its stages, the pause that readers see, memory at each stage.

    A version takes 4 N d bytes of vectors and about 700 bytes of text a passage, on the disk and in memory; building
    one takes twice that. One million passages of 768 dimensions: --passages 1000000.
    """
    from service.offline.benchmarks.swap import measure_swaps
    from service.offline.benchmarks.synthetic import build_versions

    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="openbook-bench-", dir=folder) as made, ProgressBar() as progress:
        store = build_versions(Path(made), passages, dimension, index_type, progress.update)
        report = measure_swaps(store, swaps=swaps, cold=cold, progress=progress.update)
    show(report, json_file, markdown_file)
