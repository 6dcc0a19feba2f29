"""openbook index: import, merge, delete, bm25, prune"""

import time
from pathlib import Path
from typing import Annotated

import typer

from openbook.cli.client import quieten_libraries
from openbook.cli.consoles import say
from openbook.cli.index_build import NewVersion, show_report, stopped
from openbook.cli.options import REQUIRED, argument, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.errors import SettingInvalid, UnknownIndex
from openbook.indexing.bm25_build import K1, B, Bm25Parameters
from openbook.indexing.bm25_publish import add_bm25
from openbook.indexing.building.work_folder import bases, work_place
from openbook.settings import Settings
from openbook.storage.opening import RemoteVersions, folder_of, store_of
from openbook.storage.placing import PRUNE_AFTER_S, delete_version
from openbook.storage.placing import prune as prune_store
from openbook.storage.retention import Retention, retire

PERCENT = 100


@with_options
def import_vectors(
    settings: Annotated[Settings, "indexes"],
    made: NewVersion,
    source: str = argument(
        "SOURCE",
        "The passages: psgs_w100.tsv, .jsonl, or whatever index build reads; or a folder of Arrow or Parquet "
        "files with id, title, text and embeddings, as wiki_dpr is.",
    ),
    name: str = option(REQUIRED, "Name of the version."),
    encoder: str = option(
        REQUIRED,
        "Encoder that made the vectors, such as facebook/dpr-ctx_encoder-multiset-base. A folder is loaded "
        "and checked: it must reproduce the vectors of some passages.",
    ),
    vectors: tuple[Path, ...] = option(
        (),
        "The vectors, in the order of the passages: DPR's wikipedia_passages_0, _1 ..., or .npy files, or a "
        "folder of either. Again for each file. No code in a pickle is ever run.",
    ),
    faiss: Path | None = option(
        None,
        "FAISS file of these vectors, such as wiki_dpr's, to use as it is; without it an index is built from "
        "the vectors. Its metric must be the inner product.",
        metavar="FILE",
    ),
    url_template: str | None = option(
        None,
        "Address of a passage that has none, such as https://en.wikipedia.org/wiki/{title}: of {title} and {id}.",
    ),
    fingerprint: str = option("", "Fingerprint of the encoder, when its folder is not on this machine."),
    date: str | None = option(None, "Date of the text, such as 2018-12-20."),
    licence: str = option("", "Licence of the text."),
) -> None:
    """Publish passages with vectors that are there already.

    You may stop it and start it again, like index build.
    """
    store = folder_of(settings, "openbook index import")
    made.check_free(store, name)

    from openbook.indexing.building.estimating import measure_source
    from openbook.indexing.building.ready import NamedEncoder, Ready, ReadyVectors
    from openbook.indexing.faiss_adopting import adoptable
    from openbook.indexing.imports.arrays import VectorFiles
    from openbook.indexing.imports.dataset_folder import DatasetFolder, is_dataset
    from openbook.indexing.index_builder import BuildOptions, build_index
    from openbook.indexing.passage_encoder import PassageEncoder
    from openbook.indexing.sources import PassageSource, open_source
    from openbook.indexing.sources.url_template import UrlTemplate
    from openbook.indexing.text_tree import stamp_of

    quieten_libraries()
    opened: PassageSource
    ready: ReadyVectors
    if is_dataset(Path(source)) and not vectors:
        template = UrlTemplate(url_template, ("title", "id")) if url_template is not None else None
        dataset = DatasetFolder(Path(source), snapshot_date=date, licence=licence, url_template=template)
        opened, ready = dataset, dataset
    elif vectors:
        opened = open_source(source, snapshot_date=date, licence=licence, url_template=url_template)
        ready = VectorFiles(vectors)
    else:
        raise SettingInvalid(setting="--vectors", reason="is needed beside passages that bring none")
    if faiss is not None and made.index != "auto":
        raise SettingInvalid(setting="--index", reason="makes an index, and --faiss brings one; leave one of them out")
    adopted = None if faiss is None else adoptable(faiss, ready.dimension, made.numbers)
    loaded = None
    if Path(encoder).is_dir():
        loaded = PassageEncoder.load(encoder)
        named = NamedEncoder(loaded.name, loaded.fingerprint, ready.dimension)
    else:
        named = NamedEncoder(encoder, fingerprint, ready.dimension)
    options = BuildOptions(
        index=made.index,
        numbers=made.numbers,
        replace=made.force,
        restart=made.restart,
        stamp=" ".join(
            stamp_of(path) for path in (Path(source), *vectors, *([faiss] if faiss else ())) if path.exists()
        ),
        size=measure_source(opened),
        engine=Ready(ready, loaded),
        adopted=adopted,
    )
    with ProgressBar(stopped=stopped(name)) as progress:
        built = build_index(store, name, opened, named, options, report=progress)
    show_report(store, built, embedded=False)
    if not built.info.encoder_fingerprint:
        say("the encoder's fingerprint is not known: no checkpoint can be compared with it")


@with_options
def merge(
    settings: Annotated[Settings, "indexes"],
    made: NewVersion,
    versions: tuple[str, ...] = argument("VERSION...", "Two versions or more, of one encoder."),
    name: str = option(REQUIRED, "Name of the new version."),
    prefix: bool = option(
        False,
        "Prefix each passage id with its version: VERSION/ID. For versions that use "
        "the same ids for different passages.",
    ),
) -> None:
    """Make one version of several, with the vectors that they have. The several stay as they are.

    Two versions that use one id are refused, and the id is named; --prefix keeps both passages.
    """
    if len(set(versions)) < 2 or len(set(versions)) < len(versions):
        raise SettingInvalid(setting="VERSION", reason="two different versions are needed, or more")
    store = folder_of(settings, "openbook index merge")
    made.check_free(store, name)

    from openbook.indexing.building.estimating import measure_source
    from openbook.indexing.building.ready import Ready
    from openbook.indexing.imports.merged import Merged
    from openbook.indexing.index_builder import BuildOptions, build_index

    snapshots = [store.open(version) for version in versions]
    try:
        merged = Merged(snapshots, prefix=prefix)
        options = BuildOptions(
            index=made.index,
            numbers=made.numbers,
            replace=made.force,
            restart=made.restart,
            made_from=versions,
            stamp=" ".join(snapshot.info.created_at for snapshot in snapshots),
            size=measure_source(merged),
            engine=Ready(merged),
        )
        with ProgressBar(stopped=stopped(name)) as progress:
            built = build_index(store, name, merged, merged.encoder, options, report=progress)
    finally:
        for snapshot in snapshots:
            snapshot.close()
    show_report(store, built, embedded=False)


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
    k1: float = option(K1, "Term-frequency saturation."),
    b: float = option(B, "Length normalisation, 0 to 1."),
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
            Bm25Parameters(k1, b),
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
