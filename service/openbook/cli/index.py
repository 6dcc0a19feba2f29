"""openbook index: list, info, verify, and the commands that make and change versions"""

from dataclasses import asdict
from typing import Annotated, Any

from rich.table import Table
from rich.text import Text

from openbook.cli.consoles import megabytes, output, print_json, say, size, table
from openbook.cli.index_build import build
from openbook.cli.index_change import bm25, delete, prune
from openbook.cli.index_follow import follow
from openbook.cli.index_update import diff, update
from openbook.cli.options import argument, option, with_options
from openbook.entities import IndexInfo
from openbook.errors import IndexCorrupt
from openbook.indexing.building.work_folder import unfinished
from openbook.settings import Settings
from openbook.storage.opening import store_of


@with_options
def list_versions(
    settings: Annotated[Settings, "indexes"], as_json: bool = option(False, "Print JSON.", "--json")
) -> None:
    """List the versions in the folder or the store; a star marks CURRENT, on which services start."""
    store = store_of(settings)
    current = store.current()
    readable: list[IndexInfo] = []
    defects: list[IndexCorrupt] = []
    for version in store.versions():
        try:
            readable.append(store.info(version))
        except IndexCorrupt as defect:
            defects.append(defect)
    if as_json:
        print_json({"current": current, "versions": list(map(asdict, readable))})
    elif readable:
        columns = ("", "version", "date", "type", "encoder", "dimension", "passages", "MB")
        rows = (
            (
                "*" if one.version == current else "",
                one.version,
                one.snapshot_date,
                one.index_type,
                one.encoder_name,
                str(one.dimension),
                f"{one.n_passages:,}",
                megabytes(sum(file.bytes for file in one.files.values())),
            )
            for one in readable
        )
        output().print(table(columns, rows, right=("dimension", "passages", "MB")))
    else:
        how = (
            "build one: openbook index build wiki-2018"
            if settings.indexes_url is None
            else "push one: openbook index push VERSION URL"
        )
        say(f"no index in {settings.indexes}; {how}")
    for version in unfinished(store.folder):
        say(
            f"{version} is unfinished: repeat its command to continue the build, or discard it with "
            f"openbook index delete {version}"
        )
    if defects:
        raise defects[0]


@with_options
def info(
    settings: Annotated[Settings, "indexes"],
    version: str = argument("VERSION", "The version."),
    as_json: bool = option(False, "Print JSON.", "--json"),
) -> None:
    """Show what a version says of itself: its manifest."""
    manifest = asdict(store_of(settings).info(version))
    if as_json:
        print_json(manifest)
        return
    n_bytes = sum(file["bytes"] for file in manifest["files"].values())
    on_disk = f"{size(n_bytes)}, {n_bytes / manifest['n_passages']:,.0f} bytes a passage"
    shown = Table(box=None, show_header=False, pad_edge=False)
    for key, value in (*manifest.items(), ("on disk", on_disk)):
        if isinstance(value, dict):
            value = "\n".join(f"{name}: {_plain(part)}" for name, part in value.items())
        shown.add_row(Text(key, style="bold"), Text("" if value is None else str(value)))
    output().print(shown)


@with_options
def verify(
    settings: Annotated[Settings, "indexes"],
    version: str | None = argument("VERSION", "The version; without it, every one.", default=None),
) -> None:
    """Read every byte of a version and compare it with the manifest."""
    store = store_of(settings)
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


def _plain(value: Any) -> str:
    return ", ".join(f"{name} {part}" for name, part in value.items()) if isinstance(value, dict) else str(value)


COMMANDS = {
    "build": build,
    "list": list_versions,
    "info": info,
    "verify": verify,
    "update": update,
    "diff": diff,
    "follow": follow,
    "delete": delete,
    "bm25": bm25,
    "prune": prune,
}
