"""A source of passages becomes a published index version: read, embed, publish."""

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from service.entities import IndexInfo, Passage
from service.errors import SourceInvalid
from service.offline.sources import PassageSource
from service.rag.passage_encoder import PassageEncoder
from service.storage.faiss_index import IndexType
from service.storage.index_store import IndexStore

SHARD_PASSAGES = 4096
# Small batches of equal length: larger ones leave the cache of a processor core.
BATCH_PASSAGES = 16
READ_REPORT_EVERY = 1000


class Progress(Protocol):
    """Who shows how far a build is. `total` is None while it is not known."""

    def update(self, done: int, total: int | None, what: str) -> None: ...


class Silence:
    """Shows nothing."""

    def update(self, done: int, total: int | None, what: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class BuildReport:
    """What was built, from how many articles (titles), and where the seconds went."""

    info: IndexInfo
    n_articles: int
    read_seconds: float
    embed_seconds: float
    publish_seconds: float

    @property
    def seconds(self) -> float:
        return self.read_seconds + self.embed_seconds + self.publish_seconds


def build_index(
    store: IndexStore,
    version: str,
    source: PassageSource,
    encoder: PassageEncoder,
    *,
    index_type: IndexType = "flat",
    replace: bool = False,
    report: Progress | None = None,
) -> BuildReport:
    """Publish the passages of `source` as `version`, in their order.

    Raises IndexExists before any work is done, SourceInvalid for the first passage that cannot be indexed. Nothing
    is left in the store by a build that fails or is interrupted.
    """
    progress = report or Silence()
    store.check_free(version, replace=replace)
    started = time.perf_counter()
    passages = _read(source, progress)
    read = time.perf_counter()
    vectors = _embed(passages, encoder, progress)  # (N, d)
    embedded = time.perf_counter()
    progress.update(0, 1, "publish")
    info = store.publish(
        version,
        vectors=vectors,
        passages=passages,
        index_type=index_type,
        encoder_name=encoder.name,
        encoder_fingerprint=encoder.fingerprint,
        snapshot_date=source.snapshot_date,
        source=source.name,
        licence=source.licence,
        replace=replace,
    )
    progress.update(1, 1, "publish")
    return BuildReport(
        info=info,
        n_articles=len({passage.title for passage in passages}),
        read_seconds=read - started,
        embed_seconds=embedded - read,
        publish_seconds=time.perf_counter() - embedded,
    )


def _read(source: PassageSource, progress: Progress) -> list[Passage]:
    passages: list[Passage] = []
    progress.update(0, None, "read")
    for passage in source.passages():
        passages.append(passage)
        if len(passages) % READ_REPORT_EVERY == 0:
            progress.update(len(passages), None, "read")
    if not passages:
        raise SourceInvalid(source=source.name, reason="there is no passage to index")
    progress.update(len(passages), len(passages), "read")
    return passages


def _embed(passages: list[Passage], encoder: PassageEncoder, progress: Progress) -> NDArray[np.float32]:
    """Vectors of all passages, shard by shard: (N, d)."""
    vectors = np.empty((len(passages), encoder.dimension), dtype=np.float32)
    progress.update(0, len(passages), "embed")
    for start in range(0, len(passages), SHARD_PASSAGES):
        shard = passages[start : start + SHARD_PASSAGES]
        done = start

        def count(n: int) -> None:
            nonlocal done
            done += n
            progress.update(done, len(passages), "embed")

        vectors[start : start + len(shard)] = encoder.encode(shard, batch_size=BATCH_PASSAGES, progress=count)
    return vectors
