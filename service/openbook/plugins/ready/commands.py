"""openbook index import and merge"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from openbook.cli.client import quieten_libraries
from openbook.cli.consoles import say
from openbook.cli.index_build import IndexNumbers, NewVersion, show_report, stopped
from openbook.cli.options import REQUIRED, argument, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from openbook.storage.opening import folder_of


@with_options
def import_vectors(
    settings: Annotated[Settings, "indexes"],
    made: NewVersion,
    of_index: IndexNumbers,
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

    from openbook.indexing.building.embedding import NamedEncoder
    from openbook.indexing.building.estimating import measure_source
    from openbook.indexing.faiss_adopting import adoptable
    from openbook.indexing.index_builder import build_index
    from openbook.indexing.passage_encoder import PassageEncoder
    from openbook.indexing.sources import PassageSource, open_source
    from openbook.indexing.sources.url_template import UrlTemplate
    from openbook.indexing.text_tree import stamp_of
    from openbook.plugins.ready.arrays import VectorFiles
    from openbook.plugins.ready.dataset_folder import DatasetFolder, is_dataset
    from openbook.plugins.ready.engine import Ready, ReadyVectors

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
    adopted = None if faiss is None else adoptable(faiss, ready.dimension, of_index.numbers)
    loaded = None
    if Path(encoder).is_dir():
        loaded = PassageEncoder.load(encoder)
        named = NamedEncoder(loaded.name, loaded.fingerprint, ready.dimension)
    else:
        named = NamedEncoder(encoder, fingerprint, ready.dimension)
    options = replace(
        made.options(made.index, of_index.numbers),
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
    from openbook.indexing.index_builder import build_index
    from openbook.plugins.ready.engine import Ready
    from openbook.plugins.ready.merged import Merged

    snapshots = [store.open(version) for version in versions]
    try:
        merged = Merged(snapshots, prefix=prefix)
        options = replace(
            made.options(made.index),
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
