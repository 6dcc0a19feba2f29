"""Vectors that are there already, in the place of an encoder and its work."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from openbook.errors import SourceInvalid
from openbook.indexing.building.embedding import Count, Vectors
from openbook.indexing.building.work_folder import WorkFolder

# A block of consecutive rows: the ids that the vectors say they are of, where they say it, and the vectors (b, d).
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
    """An Engine that looks vectors up. Each is held against the id of its passage, where it has one."""

    def __init__(self, vectors: ReadyVectors, checks: Callable[[WorkFolder, int, Vectors], None] | None = None) -> None:
        self._vectors = vectors
        self._checks = checks

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Iterator[tuple[int, Vectors]]:
        stream = _Rows(self._vectors)
        for number in numbers:
            shard = work.shards[number]
            ids, vectors = stream.take(shard.first, shard.n_passages)
            for position, passage in enumerate(work.read_shard(number)):
                if ids and ids[position] != passage.passage_id:
                    raise SourceInvalid(
                        source=self._vectors.name,
                        reason=f"vector {shard.first + position} is of passage {ids[position]!r}, where the passages "
                        f"have {passage.passage_id!r}: give the files in the order of the passages",
                    )
            if self._checks is not None:
                self._checks(work, number, vectors)
            count(shard.n_passages)
            yield number, vectors
        if numbers and stream.goes_on(work.n_passages):
            raise SourceInvalid(
                source=self._vectors.name, reason=f"it goes on after the last of {work.n_passages:,} passages"
            )

    def close(self) -> None:
        pass


class _Rows:
    """Blocks of any size cut anew. Goes forward only."""

    def __init__(self, vectors: ReadyVectors) -> None:
        self._name = vectors.name
        self._blocks = vectors.blocks()
        self._position = 0
        self._ids: Sequence[str] | None = None
        self._block: Vectors = np.empty((0, vectors.dimension), dtype=np.float32)  # (b, d)

    def take(self, first: int, n_rows: int) -> tuple[list[str], Vectors]:
        """The ids, if any, and the vectors (n, d) of these rows. Raises SourceInvalid where there are fewer."""
        ids: list[str] = []
        parts: list[Vectors] = []
        wanted = n_rows
        while wanted:
            if self._position + len(self._block) <= first:
                self._next(first)
                continue
            start = first - self._position
            part = self._block[start : start + wanted]  # (p, d)
            ids += [] if self._ids is None else self._ids[start : start + wanted]
            parts.append(part)
            first, wanted = first + len(part), wanted - len(part)
        vectors = np.concatenate(parts).astype(np.float32)  # (n, d)
        if not np.isfinite(vectors).all():
            raise SourceInvalid(source=self._name, reason=f"a vector of rows {first - n_rows} to {first} is not finite")
        return ids, vectors

    def goes_on(self, n_rows: int) -> bool:
        """Whether there are vectors behind the first `n_rows`, which have been taken."""
        return self._position + len(self._block) > n_rows or next(self._blocks, None) is not None

    def _next(self, wanted: int) -> None:
        self._position += len(self._block)
        block = next(self._blocks, None)
        if block is None:
            raise SourceInvalid(
                source=self._name, reason=f"it ends after {self._position:,} vectors; there is none for row {wanted:,}"
            )
        self._ids, self._block = block
