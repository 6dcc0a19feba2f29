"""A source of passages becomes a published index version: read, embed, publish; and again from where it stopped."""

import datetime
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from openbook.entities import IndexInfo
from openbook.errors import IndexExists, SourceInvalid
from openbook.indexing.bm25_build import Bm25Parameters
from openbook.indexing.building import embedding, reading
from openbook.indexing.building.embedding import Engine, InProcess
from openbook.indexing.building.estimating import SourceSize, check_disk, machine_memory
from openbook.indexing.building.named_encoder import NamedEncoder
from openbook.indexing.building.plain import Passages, as_source
from openbook.indexing.building.progress import BuildReport, Progress, Silence
from openbook.indexing.building.recipe import recipe_of
from openbook.indexing.building.unfinished import work_place
from openbook.indexing.building.vector_rows import VectorRows
from openbook.indexing.building.work_folder import INDEX, VECTORS, WorkFolder, remove, working
from openbook.indexing.building.workers import Workers
from openbook.indexing.faiss_adopting import Adoptable
from openbook.indexing.index_spec import IndexSpec, choose_index, estimate
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.publishing import check_free, publish
from openbook.indexing.sources import PassageSource
from openbook.storage.index_store import IndexStore

__all__ = ["BuildOptions", "BuildReport", "Progress", "Silence", "build_index"]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build what the source and the encoder decide.

    `index` is auto, flat, hnsw, ivfpq or a FAISS factory string, `numbers` are those of choose_index. `workers` None
    is one process a processor. `restart` throws away what an earlier attempt left. `stamp` tells one content of the
    source from another of the same size, `size` is what a look at it said. `engine` makes another Engine than
    processes on this machine. `bm25` publishes its scores beside the vectors. `adopted` is a FAISS file
    that is the index already; neither `index` nor `numbers` is then read.
    """

    index: str = "flat"
    numbers: Mapping[str, int | None] = field(default_factory=dict)
    replace: bool = False
    restart: bool = False
    workers: int | None = None
    stamp: str = ""
    size: SourceSize | None = None
    engine: Callable[[PassageEncoder | NamedEncoder, int], Engine] | None = None
    bm25: Bm25Parameters | None = None
    adopted: Adoptable | None = None


def build_index(
    store: IndexStore,
    version: str,
    source: PassageSource | Passages,
    encoder: PassageEncoder | NamedEncoder,
    options: BuildOptions | None = None,
    *,
    report: Progress | None = None,
) -> BuildReport:
    """Publish the passages of `source` as `version`, in their order.

    What is done is kept in `.work-<version>` beside the versions until it is published. The same call after a kill
    goes on from there: at most one shard of 4096 passages is read or embedded again, and the version is the same to
    the byte (a flat one; the links of HNSW depend on the order of its threads).

    Raises IndexExists before any work is done; BuildInProgress, BuildDiffers; DiskTooSmall before it is embedded;
    SourceInvalid for the first passage that cannot be indexed, and then nothing is kept.
    """
    options = options or BuildOptions()
    progress = report or Silence()
    source = as_source(source)
    batch = embedding.BATCH_PASSAGES if encoder.device == "cpu" else embedding.GPU_BATCH_PASSAGES
    file = str(options.adopted.path) if options.adopted is not None else None
    chosen = {"type": options.index, "file": file, **options.numbers}
    recipe = recipe_of(source, encoder, batch, chosen) | {"stamp": options.stamp}
    if not work_place(store.folder, version).exists():
        check_free(store, version, replace=options.replace)
    with working(store.folder, version, recipe, restart=options.restart) as work:
        build = _Build(store, version, source, encoder, options, batch, work, progress)
        try:
            return build.run()
        except (SourceInvalid, IndexExists):
            # nothing can come of it, however often it is taken up
            remove(work.place)
            raise


class _Build:
    """One attempt at one version."""

    def __init__(
        self,
        store: IndexStore,
        version: str,
        source: PassageSource,
        encoder: PassageEncoder | NamedEncoder,
        options: BuildOptions,
        batch: int,
        work: WorkFolder,
        progress: Progress,
    ) -> None:
        self._store = store
        self._version = version
        self._source = source
        self._encoder = encoder
        self._options = options
        self._batch = batch
        self._work = work
        self._progress = progress

    def run(self) -> BuildReport:
        published = self._published()
        if published is not None:
            # the process was ended between publishing and clearing up
            return self._end(published, 0.0, 0.0, 0.0, published.n_passages)
        check_free(self._store, self._version, replace=self._options.replace)
        started = time.perf_counter()
        reading.drop_damaged(self._work)
        if self._options.size is not None:
            self._check_disk(self._spec(self._options.size.n_passages), self._options.size)
        reading.read(self._source, self._work, self._progress)
        read = time.perf_counter()
        spec = self._chosen()
        rows = VectorRows(
            self._work.place / VECTORS,
            self._work.n_passages,
            self._encoder.dimension,
            "float16" if spec.lossy else "float32",
        )
        try:
            resumed = self._embed(rows)
            embedded = time.perf_counter()
            info = self._publish(rows, spec)
        finally:
            rows.close()
        return self._end(info, read - started, embedded - read, time.perf_counter() - embedded, resumed)

    def _published(self) -> IndexInfo | None:
        """The version, where this very work has become it."""
        began = self._work.facts.get("publishing")
        if began is None or self._version not in self._store.versions():
            return None
        info = self._store.info(self._version)
        same = (info.n_passages, info.encoder_fingerprint) == (self._work.n_passages, self._encoder.fingerprint)
        return info if same and info.created_at >= began else None

    def _spec(self, n_passages: int) -> IndexSpec:
        if self._options.adopted is not None:
            return self._options.adopted.spec
        return choose_index(
            self._options.index,
            n_passages=n_passages,
            dimension=self._encoder.dimension,
            memory_bytes=machine_memory(),
            **self._options.numbers,
        )

    def _chosen(self) -> IndexSpec:
        """The index, decided once: a machine with other memory goes on with what was begun."""
        if "spec" not in self._work.facts:
            spec = self._spec(self._work.n_passages)
            if self._options.adopted is not None:
                self._options.adopted.check_rows(self._work.n_passages)
            size = SourceSize(self._work.n_passages, self._work.text_bytes, exact=True)
            self._check_disk(spec, size)
            parts = {name: getattr(spec, name) for name in ("index_type", "factory", "lossy", "reason", "adopted")}
            self._work.note(spec=parts | {"build": dict(spec.build), "search": dict(spec.search)})
        return IndexSpec(**self._work.facts["spec"])

    def _check_disk(self, spec: IndexSpec, size: SourceSize) -> None:
        sizes = estimate(
            spec,
            n_passages=size.n_passages,
            dimension=self._encoder.dimension,
            text_bytes=size.text_bytes,
            bm25=self._options.bm25 is not None,
        )
        check_disk(self._version, self._store.folder, sizes.building_bytes, self._work.n_bytes())

    def _embed(self, rows: VectorRows) -> int:
        """Embed what is left; returns how many passages an earlier attempt had embedded."""
        embedding.drop_damaged(self._work, rows)
        total = self._work.n_passages
        done = resumed = sum(self._work.shards[number].n_passages for number in self._work.embedded)
        self._progress.update(done, total, "embed")

        def count(n: int) -> None:
            nonlocal done
            done += n
            self._progress.update(done, total, "embed")

        if done < total:
            engine = self._engine(total - done)
            try:
                embedding.embed(self._work, rows, engine, count)
            finally:
                engine.close()
        return resumed

    def _engine(self, n_passages: int) -> Engine:
        if self._options.engine is not None:
            return self._options.engine(self._encoder, self._batch)
        if isinstance(self._encoder, NamedEncoder):
            raise TypeError("vectors of an encoder that is only named take an engine that has them")
        n_workers = embedding.n_workers(self._options.workers, n_passages, device=self._encoder.device)
        if n_workers == 1:
            return InProcess(self._encoder, self._batch)
        return Workers(self._encoder, self._batch, n_workers)

    def _publish(self, rows: VectorRows, spec: IndexSpec) -> IndexInfo:
        now = datetime.datetime.now(datetime.UTC)
        # earlier attempts have made no version: their time would only make this one's look older
        self._work.note(publishing=now.isoformat(timespec="seconds"))
        return publish(
            self._store,
            self._version,
            vectors=rows.mapped(),
            passages=self._work.passages(),
            spec=spec,
            encoder_name=self._encoder.name,
            encoder_fingerprint=self._encoder.fingerprint,
            snapshot_date=self._source.snapshot_date,
            source=self._source.name,
            licence=self._source.licence,
            attribution=self._source.attribution,
            replace=self._options.replace,
            work=self._work.place / INDEX,
            report=self._progress.update,
            bm25=self._options.bm25,
            adopted=self._options.adopted.path if self._options.adopted is not None else None,
        )

    def _end(self, info: IndexInfo, read: float, embed: float, publish: float, resumed: int) -> BuildReport:
        facts = self._work.facts
        remove(self._work.place)
        return BuildReport(
            info=info,
            n_articles=facts["n_articles"],
            read_seconds=read,
            embed_seconds=embed,
            publish_seconds=publish,
            skipped=facts["skipped"],
            resumed=resumed,
            index_reason=info.index_reason,
        )
