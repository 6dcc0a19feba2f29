"""The second step: the vectors of each shard, made by one process or by several.

What is computed together decides the last bits of a vector. So a shard is always cut into the same batches, each is
computed by one thread, and any number of workers makes the same bytes. (Another kind of processor, or a GPU, does not.)
"""

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid
from openbook.indexing.building.vector_rows import VectorRows
from openbook.indexing.building.work_folder import WorkFolder
from openbook.indexing.encoder_source import EncoderSource
from openbook.indexing.passage_encoder import PassageEncoder

# Small batches of equal length: larger ones leave the cache of a processor core. A GPU wants many at once.
BATCH_PASSAGES = 16
GPU_BATCH_PASSAGES = 256
# Batches handed to a worker at once: seconds of work, so that none waits long for the last at the end of a shard.
TASK_BATCHES = 4
# Below so many passages, starting another worker takes longer than it saves.
PASSAGES_A_WORKER = 512

Vectors = NDArray[np.float32]
Count = Callable[[int], None]


class Engine(Protocol):
    """Makes the vectors of shards."""

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Iterator[tuple[int, Vectors]]:
        """The number of each shard with its vectors (n, d), as they are finished. `count` is told of passages."""
        ...

    def close(self) -> None: ...


def embed(work: WorkFolder, rows: VectorRows, engine: Engine, count: Count) -> None:
    """Fill the rows of every shard whose vectors are not on the disk yet. `count` is told how many more are done."""
    left = [shard.number for shard in work.shards if shard.number not in work.embedded]
    for number, vectors in engine.vectors(work, left, count):
        work.note_embedded(number, rows.write(work.shards[number].first, vectors))


def drop_damaged(work: WorkFolder, rows: VectorRows) -> None:
    """Forget the vectors that do not lie on the disk as they were written."""
    damaged = [
        number
        for number, sha256 in work.embedded.items()
        if rows.sha256(work.shards[number].first, work.shards[number].n_passages) != sha256
    ]
    work.forget_embedded(damaged)


def embed_shard(
    encoder: PassageEncoder, passages: Sequence[Passage], batch: int, count: Count | None = None
) -> Vectors:
    """The vectors of a shard in its order (n, d), each batch by one thread."""
    vectors = np.empty((len(passages), encoder.dimension), dtype=np.float32)  # (n, d)
    with one_thread():
        for rows in tasks(passages, batch):
            vectors[rows] = encoder.encode([passages[row] for row in rows], batch_size=batch)
            if count is not None:
                count(len(rows))
    return vectors


def tasks(passages: Sequence[Passage], batch: int) -> list[list[int]]:
    """Which rows of a shard are computed by one call: neighbours in length, the longest first."""
    order = sorted(range(len(passages)), key=lambda row: -len(passages[row].title) - len(passages[row].text))
    step = batch * TASK_BATCHES
    return [order[start : start + step] for start in range(0, len(order), step)]


class one_thread:  # noqa: N801
    """Torch computes with one thread, and afterwards with as many as before."""

    def __enter__(self) -> None:
        self._before = torch.get_num_threads()
        torch.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        torch.set_num_threads(self._before)


class InProcess:
    """The encoder of this process, shard by shard."""

    def __init__(self, encoder: PassageEncoder, batch: int) -> None:
        self._encoder = encoder
        self._batch = batch

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Iterator[tuple[int, Vectors]]:
        for number in numbers:
            yield number, embed_shard(self._encoder, work.read_shard(number), self._batch, count)

    def close(self) -> None:
        pass


def load_same(source: EncoderSource, fingerprint: str) -> PassageEncoder:
    """The encoder of another process, here. Raises CheckpointInvalid where its files are not the same any more."""
    encoder = PassageEncoder.load(source.place, device=source.device, dtype=source.dtype)
    if encoder.fingerprint != fingerprint:
        raise CheckpointInvalid(
            checkpoint=encoder.name,
            reason=f"its fingerprint is {encoder.fingerprint} here, {fingerprint} was begun with",
        )
    return encoder


def n_workers(asked: int | None, n_passages: int, *, device: str) -> int:
    """How many processes are worth it: one a processor that this process may use, fewer for little work; one a GPU."""
    if asked is not None:
        return asked
    if device != "cpu":
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), n_passages // PASSAGES_A_WORKER))
