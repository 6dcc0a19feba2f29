"""openbook index: import, merge, delete, prune"""

from pathlib import Path
from typing import Annotated

import typer

from openbook.cli.client import quieten_libraries
from openbook.cli.consoles import messages
from openbook.cli.index_build import make_current, show_report
from openbook.cli.index_options import IndexChoice, Numbers, takes_index_numbers
from openbook.cli.options import takes_settings
from openbook.cli.progress import ProgressBar
from openbook.errors import SettingInvalid, UnknownIndex
from openbook.indexing.building.work_folder import work_place
from openbook.indexing.publishing import PRUNE_AFTER_S, check_free, delete_version
from openbook.indexing.publishing import prune as prune_store
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore

Force = Annotated[bool, typer.Option("--force", help="Replace a version of this name.")]
Restart = Annotated[bool, typer.Option("--restart", help="Throw away what a stopped attempt at this version has done.")]


@takes_settings("indexes")
@takes_index_numbers
def import_vectors(
    settings: Settings,
    numbers: Numbers,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="The passages: psgs_w100.tsv, .jsonl, or whatever index build reads; or a folder of Arrow or Parquet "
            "files with id, title, text and embeddings, as wiki_dpr is.",
        ),
    ],
    name: Annotated[str, typer.Option(help="Name of the version.")],
    encoder: Annotated[
        str,
        typer.Option(
            help="What made the vectors, such as facebook/dpr-ctx_encoder-multiset-base. A folder is loaded, and must "
            "make the vectors of some passages again."
        ),
    ],
    vectors: Annotated[
        list[Path] | None,
        typer.Option(
            help="The vectors, in the order of the passages: DPR's wikipedia_passages_0, _1 ..., or .npy files, or a "
            "folder of either. Again for each file. No code in a pickle is ever run."
        ),
    ] = None,
    faiss: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A FAISS file of these vectors, such as wiki_dpr's, to be taken as it is; without it an index is made "
            "of the vectors. It must measure inner products and find the vectors.",
        ),
    ] = None,
    fingerprint: Annotated[
        str, typer.Option(help="The encoder's fingerprint, where it is known and its folder is not here.")
    ] = "",
    index: IndexChoice = "auto",
    date: Annotated[str | None, typer.Option(help="Date of the text, such as 2018-12-20.")] = None,
    licence: Annotated[str, typer.Option(help="Licence of the text.")] = "",
    restart: Restart = False,
    force: Force = False,
) -> None:
    """Publish passages with vectors that are there already.

    It may be stopped and started again as index build may.
    """
    store = IndexStore(settings.indexes)
    _check_free(store, name, force)

    from openbook.indexing.building.estimating import measure_source
    from openbook.indexing.building.ready import NamedEncoder, Ready, ReadyVectors, same_vectors
    from openbook.indexing.building.work_folder import stamp_of
    from openbook.indexing.faiss_adopting import adoptable
    from openbook.indexing.imports.arrays import open_vectors
    from openbook.indexing.imports.dataset_folder import DatasetFolder, is_dataset
    from openbook.indexing.index_builder import BuildOptions, build_index
    from openbook.indexing.passage_encoder import PassageEncoder
    from openbook.indexing.sources import PassageSource, open_source

    quieten_libraries()
    opened: PassageSource
    ready: ReadyVectors
    if is_dataset(Path(source)) and not vectors:
        dataset = DatasetFolder(Path(source), snapshot_date=date, licence=licence)
        opened, ready = dataset, dataset
    elif vectors:
        opened, ready = open_source(source, snapshot_date=date, licence=licence), open_vectors(vectors)
    else:
        raise SettingInvalid(setting="--vectors", reason="is needed beside passages that bring none")
    if faiss is not None and index != "auto":
        raise SettingInvalid(setting="--index", reason="makes an index, and --faiss brings one; leave one of them out")
    adopted = None if faiss is None else adoptable(faiss, ready.dimension, numbers)
    checks = None
    if Path(encoder).is_dir():
        loaded = PassageEncoder.load(encoder)
        named = NamedEncoder(loaded.name, loaded.fingerprint, ready.dimension)
        checks = same_vectors(loaded, ready.name)
    else:
        named = NamedEncoder(encoder, fingerprint, ready.dimension)
    options = BuildOptions(
        index=index,
        numbers=numbers,
        replace=force,
        restart=restart,
        stamp=" ".join(
            stamp_of(path) for path in (Path(source), *(vectors or ()), *([faiss] if faiss else ())) if path.exists()
        ),
        size=measure_source(opened),
        engine=lambda *_: Ready(ready, checks),
        adopted=adopted,
    )
    console = messages()
    with ProgressBar() as progress:
        built = build_index(store, name, opened, named, options, report=progress)
    show_report(console, built, embedded=False)
    if not built.info.encoder_fingerprint:
        console.print("the encoder's fingerprint is not known: no checkpoint can be held to it", markup=False)
    make_current(store, name, console)


@takes_settings("indexes")
@takes_index_numbers
def merge(
    settings: Settings,
    numbers: Numbers,
    versions: Annotated[list[str], typer.Argument(metavar="VERSION...", help="Two versions or more, of one encoder.")],
    name: Annotated[str, typer.Option(help="Name of the new version.")],
    prefix: Annotated[
        bool,
        typer.Option("--prefix", help="Call a passage VERSION/ID, where two versions use the same ids for others."),
    ] = False,
    index: IndexChoice = "auto",
    restart: Restart = False,
    force: Force = False,
) -> None:
    """Make one version of several, with the vectors that they have. They stay as they are.

    An id that two of them use is refused and named; --prefix keeps both.
    """
    if len(set(versions)) < 2 or len(set(versions)) < len(versions):
        raise SettingInvalid(setting="VERSION", reason="two different versions are needed, or more")
    store = IndexStore(settings.indexes)
    _check_free(store, name, force)

    from openbook.indexing.building.estimating import measure_source
    from openbook.indexing.building.ready import Ready
    from openbook.indexing.imports.merged import Merged
    from openbook.indexing.index_builder import BuildOptions, build_index

    snapshots = [store.open(version) for version in versions]
    try:
        merged = Merged(snapshots, prefix=prefix)
        options = BuildOptions(
            index=index,
            numbers=numbers,
            replace=force,
            restart=restart,
            stamp=" ".join(snapshot.info.created_at for snapshot in snapshots),
            size=measure_source(merged),
            engine=lambda *_: Ready(merged),
        )
        with ProgressBar() as progress:
            built = build_index(store, name, merged, merged.encoder, options, report=progress)
    finally:
        for snapshot in snapshots:
            snapshot.close()
    console = messages()
    show_report(console, built, embedded=False)
    make_current(store, name, console)


@takes_settings("indexes")
def delete(
    settings: Settings,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The version, or the name of an unfinished build.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a version, and what an unfinished build of it has done. Never the one that CURRENT names.

    Services that have it open go on answering from it until they let it go.
    """
    from openbook.indexing.building.work_folder import locked, remove

    store = IndexStore(settings.indexes)
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
    messages().print(f"removed {version}", markup=False)


@takes_settings("indexes")
def prune(
    settings: Settings,
    older_than: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Leave what was deleted or replaced more recently.")
    ] = PRUNE_AFTER_S,
) -> None:
    """Remove deleted versions, replaced files, and what dead builds left. Building and deleting do it by themselves.

    A service on another machine that shares the folder over NFS must have let go of them.
    """
    n_removed = prune_store(IndexStore(settings.indexes), older_than_s=older_than)
    messages().print(f"removed {n_removed} deleted or replaced" if n_removed else "removed nothing", markup=False)


def _check_free(store: IndexStore, version: str, force: bool) -> None:

    if not work_place(store.folder, version).exists():
        check_free(store, version, replace=force)
