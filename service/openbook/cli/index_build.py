"""openbook index build, and what every command that makes a version shares"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from openbook.cli.client import quieten_libraries
from openbook.cli.consoles import duration, say, size
from openbook.cli.options import argument, option, with_options
from openbook.cli.progress import ProgressBar
from openbook.errors import BuildDiffers, SettingInvalid
from openbook.extensions import ENGINES, extensions
from openbook.indexing.building.estimating import BuildEstimate
from openbook.indexing.building.progress import BuildReport
from openbook.indexing.building.work_folder import work_place
from openbook.indexing.sources import named_sources, open_source
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from openbook.storage.opening import folder_of
from openbook.storage.placing import check_free

if TYPE_CHECKING:
    from openbook.indexing.index_builder import BuildOptions
    from openbook.indexing.passage_encoder import PassageEncoder

# Making BM25 takes some 2.4 kB of memory a passage: more passages have it only where that is asked for.
BM25_UNASKED = 1_000_000


@dataclass(frozen=True, slots=True)
class Embedding:
    """What embeds text."""

    encoder: str | None = option(
        None,
        "Passage encoder, for an update that of the base: a folder or a hub id of a sentence-transformers model or a "
        "DPRContextEncoder. Without it all-MiniLM-L6-v2 from its package.",
    )
    precision: Literal["auto", "float32", "bfloat16"] = option(
        "auto", "Precision of the encoder. auto takes bfloat16 where the hardware supports it."
    )
    workers: int | None = option(
        None, "Processes that embed. Default: one per processor. The result is the same.", min=1, max=256
    )


@dataclass(frozen=True, slots=True)
class IndexNumbers:
    """The numbers of an index. choose_index knows their bounds and defaults, and which type has which."""

    m: int | None = option(None, "hnsw: links per vector. Default: 32.")
    ef_construction: int | None = option(None, "hnsw: candidates to visit when linking a vector. Default: 200.")
    ef_search: int | None = option(None, "hnsw: candidates to visit in a search. Default: 128.")
    nlist: int | None = option(None, "ivfpq: inverted lists. Default: about 4 * sqrt(N).")
    nprobe: int | None = option(None, "ivfpq: lists to probe in a search.")
    code_bytes: int | None = option(None, "ivfpq: bytes per code. Default: 64.")
    candidates: int | None = option(None, "ivfpq: candidates that a search re-scores exactly. Default: 200.")

    @property
    def numbers(self) -> dict[str, int | None]:
        return {field.name: getattr(self, field.name) for field in fields(IndexNumbers)}


@dataclass(frozen=True, slots=True)
class Attempt:
    """Options of every command that makes a version and can be stopped."""

    restart: bool = option(False, "Discard the unfinished build of this version.")
    force: bool = option(False, "Replace a version of this name.")

    def check_free(self, store: IndexStore, version: str, *, replace: bool = False) -> None:
        """Raises IndexExists for a version that is there, unless it may be replaced or a stopped attempt goes on."""
        if not work_place(store.folder, version).exists():
            check_free(store, version, replace=self.force or replace)

    def options(self, index: str, numbers: Mapping[str, int | None] | None = None) -> "BuildOptions":
        """What these say of a build, of an index of this type and with these numbers."""
        from openbook.indexing.index_builder import BuildOptions

        return BuildOptions(index=index, numbers=numbers or {}, replace=self.force, restart=self.restart)


@dataclass(frozen=True, slots=True)
class NewVersion(Attempt):
    """How a version is made."""

    index: str = option(
        "auto",
        "auto chooses by size and memory; flat compares with every passage; hnsw is the paper's graph; ivfpq "
        "keeps short codes in memory and the vectors on the disk; or a FAISS factory string such as IVF4096,SQ8.",
        "--index",
        "--type",
    )


@with_options
def build(
    settings: Annotated[Settings, "indexes", "device"],
    made: NewVersion,
    of_index: IndexNumbers,
    embedding: Embedding,
    source: str = argument(
        "SOURCE",
        "wiki-2016 or wiki-2018, the demo's two; or a file or folder: a Wikipedia dump (.xml, .xml.bz2), DPR's "
        "psgs_w100.tsv, .jsonl with id, title and text, a folder of Markdown, web pages, PDFs, Word, mails and more.",
    ),
    name: str | None = option(None, "Name of the version; wiki-2016 and its like bring their own."),
    engine: Literal["local", "ray"] = option(
        "local", "ray embeds on the machines of a Ray cluster: pip install 'openbook[ray]'."
    ),
    ray_address: str | None = option(None, "Address of the cluster; without it, one is started here."),
    bm25: bool | None = option(
        None,
        "Add BM25 for the hybrid retriever. Default: up to a million passages. openbook index bm25 adds it later.",
        "--bm25/--no-bm25",
    ),
    split: Literal["words", "sentences"] | None = option(
        None,
        "How to split articles. words: after 100 words, as DPR does. sentences: whole sentences of one "
        "section, up to 100 words. Default: sentences for a folder, words otherwise.",
    ),
    url_template: str | None = option(
        None,
        "URL template for passages without a URL, such as https://en.wikipedia.org/wiki/{title}. Files of "
        "lines fill in {title} and {id}, folders {title} and {path}.",
    ),
    date: str | None = option(None, "Date of the text, such as 2018-12-20, where its file has none."),
    licence: str = option("", "Licence of the text, where its file has none."),
    estimate: bool = option(False, "Estimate passages, disk and memory, and stop."),
) -> None:
    """Read passages, encode them and publish them as a version.

    You may stop it at any time: the same command goes on where it was, and does at most one shard of 4096 passages
    again. A version appears as a whole or not at all. The first one in a folder becomes CURRENT, on which services
    start.
    """
    version = name or (source if source in named_sources() else None)
    if version is None:
        raise SettingInvalid(setting="--name", reason="is needed for a version of texts of your own")
    store = folder_of(settings, "openbook index build")
    made.check_free(store, version, replace=estimate)

    # torch takes seconds to import: what can be checked without it is checked by now
    from openbook.indexing.building.embedding import n_workers
    from openbook.indexing.building.estimating import estimate_build, measure_source
    from openbook.indexing.index_builder import build_index
    from openbook.indexing.text_tree import stamp_of

    opened = open_source(source, snapshot_date=date, licence=licence, split=split, url_template=url_template)
    loaded = load_encoder(settings, embedding)
    measured = measure_source(opened)
    scored = bm25 if bm25 is not None else measured is not None and measured.n_passages <= BM25_UNASKED
    expected = estimate_build(
        measured,
        store.folder,
        index=made.index,
        dimension=loaded.dimension,
        n_workers=n_workers(embedding.workers, measured.n_passages if measured else 0, device=loaded.device),
        weights_bytes=loaded.n_bytes,
        bm25=scored,
        **of_index.numbers,
    )
    show_estimate(expected)
    if estimate:
        return
    on_cluster = None
    if engine != "local":
        on_cluster = extensions(ENGINES)[engine].load()(loaded, ray_address, embedding.workers)
    options = replace(
        made.options(made.index, of_index.numbers),
        workers=embedding.workers,
        stamp=stamp_of(Path(source)) if Path(source).exists() else "",
        size=measured,
        engine=on_cluster,
        bm25=scored,
    )
    with ProgressBar(stopped=stopped(version)) as progress:
        try:
            built = build_index(store, version, opened, loaded, options, report=progress)
        except BuildDiffers as differs:
            if differs.case != "text":
                raise
            say(f"{source} has changed since {version} was stopped: reading it again, embedding only new text")
            built = build_index(store, version, opened, loaded, replace(options, read_again=True), report=progress)
    show_report(store, built)


def load_encoder(settings: Settings, embedding: Embedding) -> "PassageEncoder":
    from openbook.indexing.passage_encoder import PassageEncoder
    from openbook.rag.checkpoint import choose_device, choose_dtype

    quieten_libraries()
    device = choose_device(settings.device)
    return PassageEncoder.load(embedding.encoder, device=device, dtype=choose_dtype(embedding.precision, device))


def stopped(version: str) -> str:
    """What is said where Ctrl-C ends the making of a version."""
    return f"{version} is stopped; the same command continues it"


def show_estimate(expected: BuildEstimate) -> None:
    """What is known before the work begins."""
    if expected.size is None or expected.spec is None or expected.index is None:
        say("the number of passages is unknown until they are read")
        return
    about = "" if expected.size.exact else "about "
    say(
        f"{about}{expected.size.n_passages:,} passages, {size(expected.size.text_bytes)} of text; "
        f"index {expected.spec.factory}: {expected.spec.reason}"
    )
    say(
        f"disk: at most {size(expected.index.building_bytes)} while it is built, {size(expected.index.disk_bytes)} "
        f"afterwards, {size(expected.free_bytes)} free; memory: about {size(expected.memory_bytes)} to build, "
        f"{size(expected.index.resident_bytes)} to serve; the time is shown once the first shard is under way"
    )


def show_report(store: IndexStore, built: BuildReport, *, embedded: bool = True) -> None:
    """What came of it; `embedded` says whether vectors were made, or taken as they were.

    The first version in a folder becomes CURRENT.
    """
    info = built.info
    say(
        f"built {info.version}: {info.n_passages:,} passages of {built.n_articles:,} articles in "
        f"{duration(built.seconds)} (reading {duration(built.read_seconds)}, "
        f"{'embedding' if embedded else 'vectors'} {duration(built.embed_seconds)}, "
        f"publishing {duration(built.publish_seconds)})"
    )
    if embedded and built.embedded_per_second:
        earlier = f", {built.resumed:,} were embedded before" if built.resumed else ""
        say(f"embedded {built.embedded_per_second:,.1f} passages/s{earlier}")
    if built.skipped:
        say(f"left out: {', '.join(f'{count:,} {reason}' for reason, count in sorted(built.skipped.items()))}")
    say(
        f"{size(built.bytes)}, {built.bytes / info.n_passages:,.0f} bytes a passage; index {info.index_type}: "
        f"{info.index_reason}"
    )
    current = store.current()
    if current is None:
        store.set_current(info.version)
        say(f"{info.version} is CURRENT: services start with it")
    elif current != info.version:
        say(f"{current} stays CURRENT: openbook index swap {info.version} makes a running service change to it")
