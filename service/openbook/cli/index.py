"""openbook index: build, list, info, verify, import, merge, delete, prune"""

import dataclasses
from typing import Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from openbook.cli.consoles import messages, output, print_json
from openbook.cli.index_build import build
from openbook.cli.index_change import delete, import_vectors, merge, prune
from openbook.cli.options import takes_settings
from openbook.cli.quantities import size
from openbook.entities import IndexInfo
from openbook.errors import IndexCorrupt
from openbook.indexing.building.work_folder import unfinished
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore

MEGABYTE = 1_000_000

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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
    for version in unfinished(settings.indexes):
        messages().print(
            f"{version} is being built or was stopped on its way: the command that began it goes on with it, "
            f"openbook index delete {version} gives it up",
            markup=False,
        )
    if defects:
        raise defects[0]


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
    n_bytes = sum(file["bytes"] for file in manifest["files"].values())
    on_disk = f"{size(n_bytes)}, {n_bytes / manifest['n_passages']:,.0f} bytes a passage"
    table.add_row(Text("on disk", style="bold"), Text(on_disk))
    output().print(table)


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
    content["bm25"] = dataclasses.asdict(info.bm25) if info.bm25 is not None else None
    content["files"] = {name: dataclasses.asdict(file) for name, file in info.files.items()}
    return content


def _plain(value: Any) -> str:
    return ", ".join(f"{name} {part}" for name, part in value.items()) if isinstance(value, dict) else str(value)


def _group() -> typer.Typer:
    group = typer.Typer()
    group.command()(build)
    group.command(name="list")(list_versions)
    group.command()(info)
    group.command()(verify)
    group.command(name="import")(import_vectors)
    group.command()(merge)
    group.command()(delete)
    group.command()(prune)
    return group


app = _group()
