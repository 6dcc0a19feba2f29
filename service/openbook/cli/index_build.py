"""openbook index build"""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from openbook.cli.client import quieten_libraries
from openbook.cli.consoles import messages
from openbook.cli.index_options import IndexChoice, Numbers, takes_index_numbers
from openbook.cli.options import takes_settings
from openbook.cli.progress import ProgressBar
from openbook.cli.quantities import duration, size
from openbook.errors import SettingInvalid
from openbook.indexing.bm25_build import Bm25Parameters
from openbook.indexing.building.estimating import BuildEstimate
from openbook.indexing.building.progress import BuildReport
from openbook.indexing.building.work_folder import work_place
from openbook.indexing.publishing import check_free
from openbook.indexing.sources import named_sources, open_source
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore

Engine = Literal["local", "ray"]


@takes_settings("indexes", "device")
@takes_index_numbers
def build(
    settings: Settings,
    numbers: Numbers,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="wiki-2016 or wiki-2018, the demo's two; wiki-vital, real summaries; or a file or folder: a Wikipedia "
            "dump (.xml, .xml.bz2), DPR's psgs_w100.tsv, .jsonl with id, title and text, a folder of .txt and .md.",
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the version; wiki-2016 and its like bring their own.")
    ] = None,
    index: IndexChoice = "auto",
    encoder: Annotated[
        str | None,
        typer.Option(
            help="Passage encoder: a folder or a hub id of a sentence-transformers model or a DPRContextEncoder; "
            "without it all-MiniLM-L6-v2 from its package."
        ),
    ] = None,
    precision: Annotated[
        Literal["auto", "float32", "bfloat16"],
        typer.Option(help="What the encoder computes in. auto takes bfloat16 where the hardware multiplies it."),
    ] = "auto",
    workers: Annotated[
        int | None,
        typer.Option(min=1, max=256, help="Processes that embed. Without it one a processor; the bytes are the same."),
    ] = None,
    engine: Annotated[
        Engine, typer.Option(help="ray embeds on the machines of a Ray cluster: pip install 'openbook[ray]'.")
    ] = "local",
    ray_address: Annotated[
        str | None, typer.Option("--ray-address", help="Address of the cluster; without it, one is started here.")
    ] = None,
    bm25: Annotated[
        bool, typer.Option("--bm25", help="Add BM25, too; openbook index bm25 does so later, and sets its numbers.")
    ] = False,
    date: Annotated[
        str | None, typer.Option(help="Date of the text, such as 2018-12-20, where its file has none.")
    ] = None,
    licence: Annotated[str, typer.Option(help="Licence of the text, where its file has none.")] = "",
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Say what it would take, in passages, disk and memory, and stop.")
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Throw away what a stopped build of this version has done.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a version of this name.")] = False,
) -> None:
    """Read passages, encode them and publish them as a version.

    It may be stopped at any time: the same command goes on where it was, and at most one shard of 4096 passages is done
    again. A version is there wholly or not at all. The first one in a folder becomes CURRENT, on which services start.
    """
    version = name or (source if source in named_sources() else None)
    if version is None:
        raise SettingInvalid(setting="--name", reason="is needed for a version that is built from a file")
    store = IndexStore(settings.indexes)

    if not work_place(store.folder, version).exists():
        check_free(store, version, replace=force or estimate)

    # torch takes seconds to import: what can be known before is known by now
    from openbook.indexing.building.embedding import n_workers
    from openbook.indexing.building.estimating import estimate_build, measure_source
    from openbook.indexing.building.work_folder import stamp_of
    from openbook.indexing.index_builder import BuildOptions, build_index
    from openbook.indexing.passage_encoder import PassageEncoder
    from openbook.rag.checkpoint import choose_device, choose_dtype

    quieten_libraries()
    console = messages()
    opened = open_source(source, snapshot_date=date, licence=licence)
    device = choose_device(settings.device)
    loaded = PassageEncoder.load(encoder, device=device, dtype=choose_dtype(precision, device))
    measured = measure_source(opened)
    expected = estimate_build(
        measured,
        store.folder,
        index=index,
        dimension=loaded.dimension,
        n_workers=n_workers(workers, measured.n_passages if measured else 0, device=device),
        weights_bytes=loaded.n_bytes,
        bm25=bm25,
        **numbers,
    )
    show_estimate(console, expected)
    if estimate:
        return
    on_cluster = None
    if engine == "ray":
        from openbook.indexing.building.ray_engine import ray_engine

        on_cluster = ray_engine(ray_address, workers)
    options = BuildOptions(
        index=index,
        numbers=numbers,
        replace=force,
        restart=restart,
        workers=workers,
        stamp=stamp_of(Path(source)) if Path(source).exists() else "",
        size=measured,
        engine=on_cluster,
        bm25=Bm25Parameters() if bm25 else None,
    )
    with ProgressBar(stopped=f"{version} is stopped; the same command goes on with it") as progress:
        built = build_index(store, version, opened, loaded, options, report=progress)
    show_report(console, built)
    make_current(store, version, console)


def show_estimate(console: Console, expected: BuildEstimate) -> None:
    """What is known before the work begins."""
    if expected.size is None or expected.spec is None or expected.index is None:
        console.print("how much there is to read is not known before it is read", markup=False)
        return
    about = "" if expected.size.exact else "about "
    console.print(
        f"{about}{expected.size.n_passages:,} passages, {size(expected.size.text_bytes)} of text; "
        f"index {expected.spec.factory}: {expected.spec.reason}",
        markup=False,
    )
    console.print(
        f"disk: at most {size(expected.index.building_bytes)} while it is built, {size(expected.index.disk_bytes)} "
        f"afterwards, {size(expected.free_bytes)} free; memory: about {size(expected.memory_bytes)} to build, "
        f"{size(expected.index.resident_bytes)} to serve; the time is shown once the first shard is under way",
        markup=False,
    )


def show_report(console: Console, built: BuildReport, *, embedded: bool = True) -> None:
    """What came of it; `embedded` says whether vectors were made, or taken as they were."""
    info = built.info
    console.print(
        f"built {info.version}: {info.n_passages:,} passages of {built.n_articles:,} articles in "
        f"{duration(built.seconds)} (reading {duration(built.read_seconds)}, "
        f"{'embedding' if embedded else 'vectors'} {duration(built.embed_seconds)}, "
        f"publishing {duration(built.publish_seconds)})",
        markup=False,
    )
    if embedded and built.embedded_per_second:
        earlier = f", {built.resumed:,} were embedded before" if built.resumed else ""
        console.print(f"embedded {built.embedded_per_second:,.1f} passages/s{earlier}", markup=False)
    if built.skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(built.skipped.items()))
        console.print(f"left out: {reasons}", markup=False)
    console.print(
        f"{size(built.bytes)}, {built.bytes / info.n_passages:,.0f} bytes a passage; index {info.index_type}: "
        f"{built.index_reason}",
        markup=False,
    )


def make_current(store: IndexStore, version: str, console: Console) -> None:
    """The first version in a folder is the one that services start on."""
    if store.current() is None:
        store.set_current(version)
        console.print(f"{version} is CURRENT: services start on it", markup=False)
