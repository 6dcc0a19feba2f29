"""A version with changes, as a source of passages; and the vectors that it need not make again."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.building.embedding import Count, ShardReader, Shards, engine_of
from openbook.indexing.building.work_folder import WorkFolder
from openbook.indexing.passage_encoder import PassageEncoder
from openbook.indexing.sources.source import PassageBatch, PassageSource, rows_before
from openbook.indexing.updating.contents import as_digests, text_digest, whole_digest
from openbook.indexing.updating.plan import UpdatePlan
from openbook.storage.snapshot import IndexSnapshot
from openbook.storage.vectors import slices

BLOCK_ROWS = 4096


class Updated(PassageSource):
    """The passages of the base that stay, in its order; then those of the changes that are new or have changed.

    A mark is the number of passages before it. The changes are read from their beginning again.
    """

    def __init__(self, base: IndexSnapshot, changes: PassageSource | None, plan: UpdatePlan) -> None:
        info = base.info
        date = (changes.snapshot_date if changes is not None else None) or info.snapshot_date
        licences = (info.licence, changes.licence if changes is not None else "")
        super().__init__(info.source, plan.n_passages, snapshot_date=date, licence=_joined(*licences))
        self.attribution = _joined(info.attribution, changes.attribution if changes is not None else "")
        self._base = base
        self._changes = changes
        self._plan = plan

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        first = rows_before(after, self.name)
        kept = np.flatnonzero(self._plan.kept)  # (n,)
        for part in slices(len(kept), BLOCK_ROWS):
            if part.stop > first:
                yield PassageBatch(self._base.passages(kept[part].tolist()), mark=str(part.stop), read=part.stop)
        done = len(kept)
        for taken in self._taken():
            done += len(taken)
            if done > first:
                yield PassageBatch(taken, mark=str(done), read=done)

    def _taken(self) -> Iterator[tuple[Passage, ...]]:
        """What the plan takes of each batch of the changes. Raises SourceInvalid where they are others by now."""
        if self._changes is None:
            return
        row = 0
        for batch in self._changes.batches():
            end = row + len(batch.passages)
            planned = zip(self._plan.taken[row:end], self._plan.wholes[row:end], batch.passages, strict=False)
            taken = [(passage, whole) for is_taken, whole, passage in planned if is_taken]
            if end > len(self._plan.taken) or any(as_digests(whole_digest(one))[0] != whole for one, whole in taken):
                raise self._moved()
            row = end
            if taken:
                yield tuple(passage for passage, _ in taken)
        if row < len(self._plan.taken):
            raise self._moved()

    def _moved(self) -> SourceInvalid:
        name = self._changes.name if self._changes is not None else self.name
        return SourceInvalid(source=name, reason="it changed while it was read; repeat the command")


@dataclass(frozen=True, slots=True)
class _Lacking:
    """Of each shard the passages whose vectors are not there: rows of the base (n,), -1 where it has none."""

    work: WorkFolder
    rows: dict[int, NDArray[np.int64]]

    def read_shard(self, number: int) -> list[Passage]:
        passages = self.work.read_shard(number)
        return [passages[place] for place in np.flatnonzero(self.rows[number] < 0)]


@dataclass(frozen=True, slots=True)
class Reusing:
    """An Engine that takes the vector of every text that the base has, bit for bit, and makes those of the others."""

    base: IndexSnapshot
    plan: UpdatePlan
    encoder: PassageEncoder
    workers: int | None = None

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Shards:
        lacking: dict[int, NDArray[np.int64]] = {}
        for number in numbers:
            texts = b"".join(map(text_digest, work.read_shard(number)))
            rows = self.plan.texts.rows(as_digests(texts))  # (n,)
            if (rows < 0).any():
                lacking[number] = rows
                continue
            count(len(rows))
            yield number, self.base.vectors(rows.tolist())
        if not lacking:
            return
        engine = engine_of(self.encoder, self.workers, self.plan.n_embedded)
        reader: ShardReader = _Lacking(work, lacking)
        with closing(engine.vectors(reader, list(lacking), count)) as shards:
            for number, made in shards:
                rows = lacking[number]
                vectors = np.empty((len(rows), self.encoder.dimension), dtype=np.float32)  # (n, d)
                vectors[rows < 0] = made
                reused = rows[rows >= 0]
                vectors[rows >= 0] = self.base.vectors(reused.tolist())
                count(len(reused))
                yield number, vectors


def _joined(*lists: str) -> str:
    """Licences or attributions of several texts, each once."""
    return "; ".join(dict.fromkeys(one for several in lists for one in several.split("; ") if one))
