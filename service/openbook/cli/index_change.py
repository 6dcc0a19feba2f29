"""openbook index: delete, bm25, prune"""

import time
from typing import Annotated

import typer

from openbook.cli.consoles import say
from openbook.cli.options import argument, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.errors import UnknownIndex
from openbook.indexing.bm25_publish import add_bm25
from openbook.indexing.building.work_folder import bases, work_place
from openbook.settings import Settings
from openbook.storage.opening import RemoteVersions, folder_of, store_of
from openbook.storage.placing import PRUNE_AFTER_S, delete_version
from openbook.storage.placing import prune as prune_store
from openbook.storage.retention import Retention, retire

PERCENT = 100


@with_options
def delete(
    settings: Annotated[Settings, "indexes"],
    version: str = argument("VERSION", "The version, or the name of an unfinished build."),
    yes: bool = option(False, "Do not ask.", "--yes", "-y"),
) -> None:
    """Remove a version, and what an unfinished build of it has done. Never the one that CURRENT names.

    Services that have it open go on answering from it until they let it go.
    """
    from openbook.indexing.building.work_folder import locked, remove

    store = store_of(settings)
    if isinstance(store, RemoteVersions):
        if not yes and not typer.confirm(f"Remove the version {version} in {store.url}?", err=True):
            raise typer.Abort
        store.remove(version)
        say(f"removed {version}")
        return
    unfinished = work_place(store.folder, version).is_dir()
    published = version in store.versions()
    if not published and not unfinished:
        raise UnknownIndex(version=version, available=store.versions())
    what = "the version" if published else "the unfinished build of"
    if not yes and not typer.confirm(f"Remove {what} {version} in {store.folder}?", err=True):
        raise typer.Abort
    if published:
        delete_version(store, version)
    if unfinished:
        with locked(store.folder, version) as place:
            remove(place)
    say(f"removed {version}")


@with_options
def bm25(
    settings: Annotated[Settings, "indexes"],
    version: str = argument("VERSION", "The version."),
) -> None:
    """Add BM25 to a version, so that questions may ask for it; it replaces BM25 that is there.

    Publishes the version anew, with the same files of vectors and passages, and embeds nothing again. A service that
    has the version open goes on as before until it swaps to it again.
    """
    started = time.perf_counter()
    with ProgressBar() as progress:
        info = add_bm25(
            folder_of(settings, "openbook index bm25"),
            version,
            report=lambda share: progress.update(round(PERCENT * share), PERCENT, "bm25"),
        )
        progress.update(PERCENT, PERCENT, "bm25")
    words = info.bm25.n_terms if info.bm25 is not None else 0
    say(
        f"added BM25 to {version}: {words:,} words of {info.n_passages:,} passages "
        f"in {time.perf_counter() - started:.1f} s"
    )


@with_options
def prune(
    settings: Annotated[Settings, "indexes"],
    keep: int | None = option(None, "Delete versions except the newest N.", min=1),
    older_than_days: float | None = option(None, "Delete only versions that are older.", min=0),
    dry_run: bool = option(False, "Show which versions would be deleted, and change nothing."),
    older_than: float = option(
        PRUNE_AFTER_S, "Keep files that were deleted or replaced more recently.", min=0, metavar="SECONDS"
    ),
) -> None:
    """Remove deleted versions, replaced files, and what dead builds left. Building and deleting do it by themselves.

    With --keep or --older-than-days, deletes versions first: with both, those that neither keeps. Never deletes the
    version that services start on, the one that a rollback leads to, or one that a process has open, on another
    machine too where the file system carries locks.
    """
    store = folder_of(settings, "openbook index prune")
    retired = retire(store, Retention(keep, older_than_days), bases(store.folder), dry_run=dry_run)
    for version, reason in retired.spared:
        say(f"{version} stays: {reason}")
    for version in retired.removed:
        say(f"{version} would be deleted" if dry_run else f"deleted {version}")
    if dry_run:
        return
    n_removed = prune_store(store, older_than_s=older_than)
    say(f"removed {n_removed} deleted or replaced" if n_removed else "removed nothing")
