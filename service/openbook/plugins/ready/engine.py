"""Vectors that are there already, in the place of an encoder and its work."""

from collections.abc import Iterator, Sequence
from itertools import islice, repeat
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import SourceInvalid
from openbook.indexing.building.embedding import Count, Shards, Vectors
from openbook.indexing.building.shards import Shard
from openbook.indexing.building.work_folder import WorkFolder
from openbook.indexing.passage_encoder import PassageEncoder

SAMPLE = 8
# Half precision, and passages that were cut at another length, change a cosine less than another encoder does.
LEAST_COSINE = 0.98
LARGEST_RATIO = 1.05

# Consecutive rows: the passage ids that the file gives with the vectors, None if it gives none, and the vectors (b, d).
Block = tuple[Sequence[str] | None, NDArray[np.float32]]


class ReadyVectors(Protocol):
    """Vectors in the order of their passages."""

    @property
    def name(self) -> str: ...

    @property
    def dimension(self) -> int: ...

    def blocks(self) -> Iterator[Block]:
        """All vectors from the first row on."""
        ...


class Ready:
    """An Engine that looks vectors up, and compares the id of each with its passage's, where the file gives ids."""

    def __init__(self, vectors: ReadyVectors, encoder: PassageEncoder | None = None) -> None:
        """With `encoder`, a few passages of the first shard are embedded again, to compare."""
        self._vectors = vectors
        self._encoder = encoder

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Shards:
        """Raises SourceInvalid for too few or too many vectors, for one of another passage or of
        another encoder, and one not finite."""
        blocks, wanted = self._vectors.blocks(), set(numbers)
        rows = (row for ids, block in blocks for row in zip(ids or repeat(None), block, strict=False))
        for shard in work.shards:
            part = list(islice(rows, shard.n_passages))
            end = shard.first + len(part)
            if len(part) < shard.n_passages:
                raise self._invalid(f"it ends after {end:,} vectors; there is none for row {end:,}")
            if shard.number not in wanted:
                continue
            # what float32 does not reach becomes infinite
            with np.errstate(over="ignore"):
                vectors = np.stack([vector for _, vector in part]).astype(np.float32)  # (n, d)
            if not np.isfinite(vectors).all():
                raise self._invalid(f"a vector of rows {shard.first} to {end} is not finite")
            if part[0][0] is not None:
                self._check_ids(work, shard, [given for given, _ in part])
            if self._encoder is not None and shard.number == 0:
                self._compare(self._encoder, work.read_shard(0), vectors)
            count(shard.n_passages)
            yield shard.number, vectors
        if next(rows, None) is not None:
            raise self._invalid(f"it goes on after the last of {work.n_passages:,} passages")

    def _check_ids(self, work: WorkFolder, shard: Shard, ids: Sequence[str | None]) -> None:
        for row, (given, passage) in enumerate(zip(ids, work.read_shard(shard.number), strict=True), shard.first):
            if given != passage.passage_id:
                raise self._invalid(
                    f"vector {row} is of passage {given!r}, where the passages have {passage.passage_id!r}: "
                    "give the files in the order of the passages"
                )

    def _compare(self, encoder: PassageEncoder, passages: Sequence[Passage], vectors: Vectors) -> None:
        """Raise SourceInvalid if the encoder makes other vectors than these (n, d) of the passages."""
        if vectors.shape[1] != encoder.dimension:
            raise self._invalid(f"{vectors.shape[1]} dimensions, where {encoder.name} makes {encoder.dimension}")
        rows = np.unique(np.linspace(0, len(vectors) - 1, SAMPLE, dtype=np.int64))  # (s,)
        made = encoder.encode([passages[row] for row in rows])  # (s, d)
        given = vectors[rows]  # (s, d)
        lengths = np.linalg.norm(made, axis=1), np.linalg.norm(given, axis=1)  # (s,) each
        cosines = (made * given).sum(axis=1) / np.maximum(lengths[0] * lengths[1], 1e-12)  # (s,)
        ratios = lengths[1] / np.maximum(lengths[0], 1e-12)  # (s,)
        if cosines.min() < LEAST_COSINE or ratios.max() > LARGEST_RATIO or ratios.min() < 1 / LARGEST_RATIO:
            raise self._invalid(
                f"{encoder.name} makes other vectors: it encoded {len(rows)} passages again, with a smallest cosine of "
                f"{cosines.min():.3f} and lengths {ratios.min():.3f} to {ratios.max():.3f} times as long"
            )

    def _invalid(self, reason: str) -> SourceInvalid:
        return SourceInvalid(source=self._vectors.name, reason=reason)
