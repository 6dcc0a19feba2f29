"""A source of passages becomes a published index version: read, embed, publish; continued where it was stopped."""

import datetime
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace

from openbook.entities import IndexInfo, Lineage
from openbook.errors import IndexExists, SourceInvalid
from openbook.indexing.building import embedding, reading
from openbook.indexing.building.embedding import Engine, NamedEncoder
from openbook.indexing.building.estimating import SourceSize, check_disk, machine_memory
from openbook.indexing.building.progress import BuildReport, Progress, Report, Silence
from openbook.indexing.building.shards import Precision, VectorRows
from openbook.indexing.building.work_folder import (
    INDEX,
    MADE_FROM,
    VECTORS,
    Recipe,
    WorkFolder,
    remove,
    work_place,
    working,
)
from openbook.indexing.faiss_adopting import Adoptable
from openbook.indexing.faiss_building import Begun
from openbook.indexing.index_spec import IndexSpec, choose_index, estimate
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.publishing import VersionContents, publish
from openbook.indexing.sources import PassageSource
from openbook.storage.index_store import IndexStore
from openbook.storage.placing import check_free, prune

__all__ = ["BuildOptions", "BuildReport", "Progress", "Silence", "build_index"]


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build a version. The source and the encoder decide the rest.

    `index` is auto, flat, hnsw, ivfpq or a FAISS factory string, with the `numbers` of choose_index. `workers` None
    is one process a processor. `restart` throws away what an earlier attempt left. `stamp` tells one content of the
    source from another of the same size, `size` is what `measure_source` returned. `read_again` continues an attempt
    whose text has changed: it reads all of it again and keeps the vectors of the shards that come out the same, which
    is right only where the text alone decides a vector. `made_from` names the versions that the build needs until it
    is done. `engine` replaces the processes on this machine. `bm25` publishes BM25 scores beside the vectors. `adopted`
    is a finished FAISS file of the vectors; `index` and `numbers` are then not read. `reason` is a sentence in place of
    choose_index's, for an index that another version has decided; `lineage` goes into the manifest. `begun` is an
    index to add to. `threads` fill the index; None is one a core.
    """

    index: str = "flat"
    numbers: Mapping[str, int | None] = field(default_factory=dict)
    replace: bool = False
    restart: bool = False
    read_again: bool = False
    made_from: Sequence[str] = ()
    workers: int | None = None
    stamp: str = ""
    size: SourceSize | None = None
    engine: Engine | None = None
    bm25: bool = False
    adopted: Adoptable | None = None
    reason: str = ""
    lineage: Lineage | None = None
    begun: Begun | None = None
    threads: int | None = None


def build_index(
    store: IndexStore,
    version: str,
    source: PassageSource,
    encoder: PassageEncoder | NamedEncoder,
    options: BuildOptions | None = None,
    *,
    report: Progress | None = None,
) -> BuildReport:
    """Publish the passages of `source` as `version`, in their order.

    `.work-<version>` beside the versions keeps the finished work until the version is published. After a kill the same
    call continues from there: it reads or embeds at most one shard of 4096 passages again, and makes the same bytes
    (of a flat index; the links of HNSW depend on the order of its threads).

    Raises IndexExists and BuildDiffers before any work is done, IndexTooLarge before anything is embedded, and
    SourceInvalid for the first passage that cannot be indexed, which leaves nothing behind.
    """
    options = options or BuildOptions()
    if not work_place(store.folder, version).exists():
        check_free(store, version, replace=options.replace)
    recipe = _recipe(source, encoder, options)
    with working(store.folder, version, recipe, restart=options.restart, read_again=options.read_again) as work:
        build = _Build(store, version, source, encoder, options, work, (report or Silence()).update)
        try:
            return build.run()
        except (SourceInvalid, IndexExists):
            # another attempt would fail in the same way
            remove(work.place)
            raise


def _recipe(source: PassageSource, encoder: PassageEncoder | NamedEncoder, options: BuildOptions) -> Recipe:
    """What decides the bytes of a version. Neither the number of workers nor the engine does."""
    file = str(options.adopted.path) if options.adopted is not None else None
    index = {"type": options.index, "file": file, **options.numbers}
    return {
        "source": source.name,
        "source_bytes": source.total_bytes,
        "date": source.snapshot_date,
        "licence": source.licence,
        "encoder": encoder.name,
        "encoder_fingerprint": encoder.fingerprint,
        "precision": encoder.precision,
        "batch": embedding.batch_passages(encoder.device),
        "reads": "heading, text",
        **{f"index_{name}": value for name, value in index.items() if value is not None},
        "stamp": options.stamp,
        **({MADE_FROM: list(options.made_from)} if options.made_from else {}),
        **source.choices,
    }


@dataclass(frozen=True, slots=True)
class _Build:
    """One attempt at one version."""

    store: IndexStore
    version: str
    source: PassageSource
    encoder: PassageEncoder | NamedEncoder
    options: BuildOptions
    work: WorkFolder
    report: Report

    def run(self) -> BuildReport:
        published = self._published()
        if published is not None:
            # the process was ended after publishing, before it had cleared up
            return self._end(published, published.n_passages)
        check_free(self.store, self.version, replace=self.options.replace)
        started = time.perf_counter()
        self.work.drop_damaged_shards()
        # files that were deleted or replaced long ago make room
        prune(self.store)
        if self.options.size is not None and self.options.size.n_passages:  # of none, reading says why
            self._check_disk(self._spec(self.options.size.n_passages), self.options.size)
        reading.read(self.source, self.work, self.report)
        read = time.perf_counter()
        spec = self._chosen()
        precision: Precision = "float16" if spec.lossy else "float32"
        rows = VectorRows(self.work.place / VECTORS, self.work.n_passages, self.encoder.dimension, precision)
        try:
            resumed = self._embed(rows)
            embedded = time.perf_counter()
            # _published compares this time with the version's
            self.work.note(publishing=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
            contents = VersionContents(
                vectors=rows.mapped(),
                passages=self.work.passages(),
                spec=spec,
                encoder_name=self.encoder.name,
                encoder_fingerprint=self.encoder.fingerprint,
                fields=self.work.fields,
                snapshot_date=self.source.snapshot_date,
                source=self.source.name,
                licence=self.source.licence,
                attribution=self.source.attribution,
                bm25=self.options.bm25,
                lineage=self.options.lineage,
                adopted=self.options.adopted.path if self.options.adopted is not None else None,
                begun=self.options.begun,
            )
            info = publish(
                self.store,
                self.version,
                contents,
                replace=self.options.replace,
                work=self.work.place / INDEX,
                report=self.report,
                n_threads=self.options.threads,
            )
        finally:
            rows.close()
        return self._end(info, resumed, read - started, embedded - read, time.perf_counter() - embedded)

    def _published(self) -> IndexInfo | None:
        """The version, if this work folder has become it."""
        began = self.work.facts.get("publishing")
        if began is None or self.version not in self.store.versions():
            return None
        info = self.store.info(self.version)
        same = (info.n_passages, info.encoder_fingerprint) == (self.work.n_passages, self.encoder.fingerprint)
        return info if same and info.created_at >= began else None

    def _spec(self, n_passages: int) -> IndexSpec:
        if self.options.adopted is not None:
            return self.options.adopted.spec
        spec = choose_index(
            self.options.index,
            n_passages=n_passages,
            dimension=self.encoder.dimension,
            memory_bytes=machine_memory(),
            **self.options.numbers,
        )
        return replace(spec, reason=self.options.reason or spec.reason)

    def _chosen(self) -> IndexSpec:
        """The index, decided once: a machine with other memory continues with the same."""
        if "spec" not in self.work.facts:
            spec = self._spec(self.work.n_passages)
            if self.options.adopted is not None:
                self.options.adopted.check_rows(self.work.n_passages)
            self._check_disk(spec, SourceSize(self.work.n_passages, self.work.text_bytes, exact=True))
            self.work.note(spec=asdict(spec))
        return IndexSpec(**self.work.facts["spec"])

    def _check_disk(self, spec: IndexSpec, size: SourceSize) -> None:
        sizes = estimate(
            spec,
            n_passages=size.n_passages,
            dimension=self.encoder.dimension,
            text_bytes=size.text_bytes,
            bm25=self.options.bm25,
        )
        check_disk(self.version, self.store.folder, sizes.building_bytes, self.work.n_bytes())

    def _embed(self, rows: VectorRows) -> int:
        """Embed what is left; returns how many passages an earlier attempt had embedded."""
        self.work.drop_damaged_vectors(rows)
        total = self.work.n_passages
        done = resumed = sum(self.work.shards[number].n_passages for number in self.work.embedded)
        self.report(done, total, "embed")

        def count(n: int) -> None:
            nonlocal done
            done += n
            self.report(done, total, "embed")

        left = [shard.number for shard in self.work.shards if shard.number not in self.work.embedded]
        if left:
            with closing(self._engine(total - done).vectors(self.work, left, count)) as shards:
                for number, vectors in shards:
                    sha256 = rows.write(self.work.shards[number].first, vectors)
                    self.work.note_embedded(number, sha256)
        return resumed

    def _engine(self, n_passages: int) -> Engine:
        if self.options.engine is not None:
            return self.options.engine
        if isinstance(self.encoder, NamedEncoder):
            raise TypeError("vectors of an encoder that is only named take an engine that has them")
        return embedding.engine_of(self.encoder, self.options.workers, n_passages)

    def _end(self, info: IndexInfo, resumed: int, *seconds: float) -> BuildReport:
        facts = self.work.facts
        remove(self.work.place)
        return BuildReport(info, facts["n_articles"], facts["skipped"], resumed, *seconds)
