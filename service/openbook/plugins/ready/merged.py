"""Several versions of one encoder as one version, with the vectors that they have."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from openbook.errors import IndexIncompatible
from openbook.indexing.building.embedding import NamedEncoder
from openbook.indexing.passage_fields import united
from openbook.indexing.sources.source import PassageBatch, PassageSource, rows_before
from openbook.plugins.ready.engine import Block
from openbook.storage.passages import PLAIN, PassageFields
from openbook.storage.snapshot import IndexSnapshot
from openbook.storage.vectors import slices

BLOCK_ROWS = 4096


class Merged(PassageSource):
    """The passages of opened snapshots, one version after the other. A mark is the number of rows before it.

    With `prefix` an id becomes <version>/<id>, so that the same id in two versions is two passages.
    """

    def __init__(self, snapshots: Sequence[IndexSnapshot], *, prefix: bool = False) -> None:
        """Raises IndexIncompatible for versions of several encoders, SourceInvalid for a field of several types."""
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
        fields = PLAIN
        for info in infos:
            # found now, and not after hours of reading
            fields = united(fields, PassageFields(info.passages_format, info.metadata), info.version)
        self._snapshots = snapshots
        self._prefix = prefix
        self.encoder = NamedEncoder(first.encoder_name, first.encoder_fingerprint, first.dimension)
        self.dimension = first.dimension
        self.attribution = "; ".join(dict.fromkeys(info.attribution for info in infos if info.attribution))

    def batches(self, after: str | None = None) -> Iterator[PassageBatch]:
        first, done = rows_before(after, self.name), 0
        for snapshot, part in self._parts():
            done += len(part)
            if done > first:
                rows = snapshot.passages(part)
                if self._prefix:
                    version = snapshot.info.version
                    rows = tuple(replace(one, passage_id=f"{version}/{one.passage_id}") for one in rows)
                yield PassageBatch(rows, mark=str(done), read=done)

    def blocks(self) -> Iterator[Block]:
        for snapshot, part in self._parts():
            yield None, snapshot.vectors(part)  # (b, d)

    def _parts(self) -> Iterator[tuple[IndexSnapshot, range]]:
        for snapshot in self._snapshots:
            for part in slices(snapshot.info.n_passages, BLOCK_ROWS):
                yield snapshot, range(part.start, part.stop)
