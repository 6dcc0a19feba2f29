"""Vectors that are there already, in the place of an encoder and its work."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from openbook.errors import SourceInvalid
from openbook.indexing.building.embedding import Count, Shards, Vectors
from openbook.indexing.building.work_folder import WorkFolder
from openbook.indexing.passage_encoder import PassageEncoder

SAMPLE = 8
# Half precision, and passages that were cut at another length, change a cosine less than another encoder does.
LEAST_COSINE = 0.98
LARGEST_RATIO = 1.05

# Consecutive rows: the passage ids that the file gives with the vectors, None if it gives none, and the vectors (b, d).
Block = tuple[Sequence[str] | None, NDArray[np.float32]]


@dataclass(frozen=True, slots=True)
class NamedEncoder:
    """The encoder that made the vectors, by name; it embeds nothing. An unknown fingerprint is empty."""

    name: str
    fingerprint: str
    dimension: int
    precision: str = "as given"
    device: str = "cpu"


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

    def __init__(self, vectors: ReadyVectors, checks: Callable[[WorkFolder, int, Vectors], None] | None = None) -> None:
        self._vectors = vectors
        self._checks = checks

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Shards:
        """Raises SourceInvalid for too few or too many vectors, for one of another passage, and one not finite."""
        stream = _Rows(self._vectors)
        for number in numbers:
            shard = work.shards[number]
            ids, vectors = stream.take(shard.first, shard.n_passages)
            for position, passage in enumerate(work.read_shard(number) if ids else ()):
                if ids[position] != passage.passage_id:
                    raise SourceInvalid(
                        source=self._vectors.name,
                        reason=f"vector {shard.first + position} is of passage {ids[position]!r}, where the passages "
                        f"have {passage.passage_id!r}: give the files in the order of the passages",
                    )
            if self._checks is not None:
                self._checks(work, number, vectors)
            count(shard.n_passages)
            yield number, vectors
        if numbers and stream.has_more_than(work.n_passages):
            raise SourceInvalid(
                source=self._vectors.name, reason=f"it goes on after the last of {work.n_passages:,} passages"
            )


class _Rows:
    """Blocks of any size, cut anew. It moves forward only."""

    def __init__(self, vectors: ReadyVectors) -> None:
        self._name = vectors.name
        self._blocks = vectors.blocks()
        self._position = 0  # of the first row of the block
        self._ids: Sequence[str] | None = None
        self._block: Vectors = np.empty((0, vectors.dimension), dtype=np.float32)  # (b, d)

    def take(self, first: int, n_rows: int) -> tuple[list[str], Vectors]:
        """The ids, if any, and the vectors (n, d) of these rows. Raises SourceInvalid if there are fewer."""
        ids: list[str] = []
        parts: list[Vectors] = []
        row, end = first, first + n_rows
        while row < end:
            while self._position + len(self._block) <= row:
                self._next(row)
            part = slice(row - self._position, end - self._position)
            ids += [] if self._ids is None else self._ids[part]
            parts.append(self._block[part])  # (p, d)
            row += len(parts[-1])
        vectors = np.concatenate(parts).astype(np.float32)  # (n, d)
        if not np.isfinite(vectors).all():
            raise SourceInvalid(source=self._name, reason=f"a vector of rows {first} to {end} is not finite")
        return ids, vectors

    def has_more_than(self, n_rows: int) -> bool:
        """Whether vectors follow the first `n_rows`, all of which have been taken."""
        return self._position + len(self._block) > n_rows or next(self._blocks, None) is not None

    def _next(self, wanted: int) -> None:
        self._position += len(self._block)
        block = next(self._blocks, None)
        if block is None:
            raise SourceInvalid(
                source=self._name, reason=f"it ends after {self._position:,} vectors; there is none for row {wanted:,}"
            )
        self._ids, self._block = block


def same_vectors(encoder: PassageEncoder, name: str) -> Callable[[WorkFolder, int, Vectors], None]:
    """A check of the first shard of an import: embeds a few of its passages again.

    It raises SourceInvalid if the encoder makes other vectors.
    """

    def check(work: WorkFolder, number: int, vectors: Vectors) -> None:
        if number:
            return
        if vectors.shape[1] != encoder.dimension:
            raise SourceInvalid(
                source=name, reason=f"{vectors.shape[1]} dimensions, where {encoder.name} makes {encoder.dimension}"
            )
        rows = np.unique(np.linspace(0, len(vectors) - 1, SAMPLE, dtype=np.int64))  # (s,)
        passages = work.read_shard(0)
        made = encoder.encode([passages[row] for row in rows])  # (s, d)
        given = vectors[rows]  # (s, d)
        lengths = np.linalg.norm(made, axis=1), np.linalg.norm(given, axis=1)  # (s,) each
        cosines = (made * given).sum(axis=1) / np.maximum(lengths[0] * lengths[1], 1e-12)  # (s,)
        ratios = lengths[1] / np.maximum(lengths[0], 1e-12)  # (s,)
        if cosines.min() < LEAST_COSINE or ratios.max() > LARGEST_RATIO or ratios.min() < 1 / LARGEST_RATIO:
            raise SourceInvalid(
                source=name,
                reason=f"its vectors are not those of {encoder.name}: of {len(rows)} that were made again the smallest "
                f"cosine is {cosines.min():.3f}, the lengths are {ratios.min():.3f} to {ratios.max():.3f} times theirs",
            )

    return check
