"""openbook index: build, list, info, verify"""

import dataclasses
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from service.cli.client import quieten_libraries
from service.cli.consoles import ProgressBar, messages, output, print_json
from service.cli.options import takes_settings
from service.entities import IndexInfo
from service.errors import IndexCorrupt, SettingInvalid
from service.settings import Settings
from service.storage.faiss_index import IndexType
from service.storage.index_store import IndexStore

app = typer.Typer()

MEGABYTE = 1_000_000
DEMO_SOURCES = ("wiki-2016", "wiki-2018")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
@takes_settings("indexes")
def build(
    settings: Settings,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="wiki-2016 or wiki-2018, the demo's two; or a file: .jsonl with id, title and text, .tsv as DPR's "
            "psgs_w100.tsv, either also with .gz.",
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the version; a demo's name is its source.")] = None,
    index_type: Annotated[
        IndexType, typer.Option("--type", help="flat searches exactly; hnsw is the paper's, for millions of passages.")
    ] = "flat",
    encoder: Annotated[
        str | None, typer.Option(help="Folder of the passage encoder; without it all-MiniLM-L6-v2 from its package.")
    ] = None,
    date: Annotated[str | None, typer.Option(help="Date of the text of a file, such as 2018-12-20.")] = None,
    licence: Annotated[str, typer.Option(help="Licence of the text of a file.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a version of this name.")] = False,
) -> None:
    """Read passages, encode them and publish them as a version.

    A version is there wholly or not at all. The first one in a folder becomes CURRENT, on which services start.
    """
    version = name or (source if source in DEMO_SOURCES else None)
    if version is None:
        raise SettingInvalid(setting="--name", reason="is needed for a version that is built from a file")
    store = IndexStore(settings.indexes)
    store.check_free(version, replace=force)

    # torch takes seconds to import: what can be known before is known by now
    from service.offline.index_builder import build_index
    from service.offline.sources import open_source
    from service.rag.checkpoint import choose_dtype
    from service.rag.passage_encoder import PassageEncoder

    quieten_libraries()
    opened = open_source(source, snapshot_date=date, licence=licence)
    with ProgressBar() as progress:
        built = build_index(
            store,
            version,
            opened,
            # five times as fast; what bfloat16 moves in a doc_score stands in docs/indexes.md
            PassageEncoder.load(encoder, dtype=choose_dtype("auto", "cpu")),
            index_type=index_type,
            replace=force,
            report=progress,
        )
    console = messages()
    console.print(
        f"built {version}: {built.info.n_passages:,} passages of {built.n_articles:,} articles "
        f"in {built.seconds:.1f} s",
        markup=False,
    )
    if store.current() is None:
        store.set_current(version)
        console.print(f"{version} is CURRENT: services start on it", markup=False)


@app.command(name="list")
@takes_settings("indexes")
def list_versions(settings: Settings, as_json: AsJson = False) -> None:
    """List the versions in the folder; a star marks CURRENT, on which services start."""
    store = IndexStore(settings.indexes)
    readable: list[IndexInfo] = []
    defects: list[IndexCorrupt] = []
    for version in store.versions():
        try:
            readable.append(store.info(version))
        except IndexCorrupt as defect:
            defects.append(defect)
    current = store.current()
    if as_json:
        print_json({"current": current, "versions": [_as_json(info) for info in readable]})
    elif readable:
        output().print(_table(readable, current))
    else:
        messages().print(f"no index in {settings.indexes}; build one: openbook index build wiki-2018", markup=False)
    if defects:
        raise defects[0]


@app.command()
@takes_settings("indexes")
def info(
    settings: Settings,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The version.")],
    as_json: AsJson = False,
) -> None:
    """Show what a version says of itself: its manifest."""
    manifest = _as_json(IndexStore(settings.indexes).info(version))
    if as_json:
        print_json(manifest)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in manifest.items():
        lines = (
            "\n".join(f"{name}: {_plain(part)}" for name, part in value.items()) if isinstance(value, dict) else value
        )
        table.add_row(Text(key, style="bold"), Text("" if lines is None else str(lines)))
    output().print(table)


@app.command()
@takes_settings("indexes")
def verify(
    settings: Settings,
    version: Annotated[
        str | None, typer.Argument(metavar="VERSION", help="The version; without it, every one.")
    ] = None,
) -> None:
    """Read every byte of a version and compare it with the manifest."""
    store = IndexStore(settings.indexes)
    versions = (version,) if version is not None else store.versions() or (store.default_version(),)
    defects: list[IndexCorrupt] = []
    console = output()
    for one in versions:
        try:
            store.verify(one, report=lambda line: console.print(line, markup=False, style="dim", soft_wrap=True))
            console.print(f"{one}: good", markup=False)
        except IndexCorrupt as defect:
            defects.append(defect)
            console.print(f"{one}: {defect}", markup=False, style="red", soft_wrap=True)
    if defects:
        raise defects[0]


def _table(versions: list[IndexInfo], current: str | None) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("", "version", "date", "type", "encoder"):
        table.add_column(column, no_wrap=True)
    for column in ("dimension", "passages", "MB"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in versions:
        table.add_row(
            "*" if one.version == current else "",
            Text(one.version),
            one.snapshot_date or "",
            one.index_type,
            Text(one.encoder_name),
            str(one.dimension),
            f"{one.n_passages:,}",
            f"{sum(file.bytes for file in one.files.values()) / MEGABYTE:,.1f}",
        )
    return table


def _as_json(info: IndexInfo) -> dict[str, Any]:
    content = {field.name: getattr(info, field.name) for field in dataclasses.fields(info)}
    content["search"] = dict(info.search)
    content["files"] = {name: dataclasses.asdict(file) for name, file in info.files.items()}
    return content


def _plain(value: Any) -> str:
    return ", ".join(f"{name} {part}" for name, part in value.items()) if isinstance(value, dict) else str(value)
