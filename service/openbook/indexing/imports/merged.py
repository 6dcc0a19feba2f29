"""Several versions of one encoder as one version, with the vectors that they have."""

from collections.abc import Iterator, Sequence

from openbook.entities import Passage
from openbook.errors import IndexIncompatible
from openbook.indexing.building.ready import Block, NamedEncoder
from openbook.indexing.sources.source import Batch, PassageSource, rows_before
from openbook.storage.snapshot import IndexSnapshot

BLOCK_ROWS = 4096


class Merged(PassageSource):
    """The passages of opened snapshots, one version after the other. A mark is the number of rows before it.

    With `prefix` an id becomes <version>/<id>, so that the same id in two versions is two passages.
    """

    def __init__(self, snapshots: Sequence[IndexSnapshot], *, prefix: bool = False) -> None:
        """Raises IndexIncompatible for versions of several encoders."""
        first = snapshots[0].info
        for other in (snapshot.info for snapshot in snapshots[1:]):
            if (other.encoder_fingerprint, other.dimension) != (first.encoder_fingerprint, first.dimension):
                raise IndexIncompatible(
                    version=other.version,
                    index_encoder=other.encoder_fingerprint,
                    checkpoint_encoder=f"{first.encoder_fingerprint} of {first.version}",
                )
        infos = [snapshot.info for snapshot in snapshots]
        super().__init__(
            " + ".join(info.version for info in infos),
            sum(info.n_passages for info in infos),
            snapshot_date=max((info.snapshot_date for info in infos if info.snapshot_date), default=None),
            licence="; ".join(dict.fromkeys(info.licence for info in infos if info.licence)),
        )
        self._snapshots = snapshots
        self._prefix = prefix
        self.encoder = NamedEncoder(first.encoder_name, first.encoder_fingerprint, first.dimension)
        self.dimension = first.dimension
        self.attribution = "; ".join(dict.fromkeys(info.attribution for info in infos if info.attribution))

    def batches(self, after: str | None = None) -> Iterator[Batch]:
        first, done = rows_before(after, self.name), 0
        for snapshot, start, end in self._parts():
            done += end - start
            if done <= first:
                continue
            rows = snapshot.passages(range(start, end))
            if self._prefix:
                rows = tuple(Passage(f"{snapshot.info.version}/{one.passage_id}", one.title, one.text) for one in rows)
            yield Batch(rows, mark=str(done), read=done)

    def blocks(self) -> Iterator[Block]:
        for snapshot, start, end in self._parts():
            yield None, snapshot.vectors(range(start, end))  # (b, d)

    def _parts(self) -> Iterator[tuple[IndexSnapshot, int, int]]:
        for snapshot in self._snapshots:
            n_rows = snapshot.info.n_passages
            for start in range(0, n_rows, BLOCK_ROWS):
                yield snapshot, start, min(n_rows, start + BLOCK_ROWS)
