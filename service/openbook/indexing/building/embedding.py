"""The second step of a build: the vectors of each shard, made by one process or by several.

What is computed together decides the last bits of a vector. So a shard is always cut into the same batches, one
thread computes each, and any number of workers makes the same bytes. (Another kind of processor, or a GPU, does not.)
"""

import functools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.utils.logging import disable_progress_bar

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid, OpenbookError, SettingInvalid
from openbook.indexing.building.work_folder import VectorRows, WorkFolder
from openbook.indexing.encoder_source import EncoderSource
from openbook.indexing.passage_encoder import PassageEncoder

# Small batches of equal length: larger ones leave the cache of a processor core. A GPU wants many at once.
BATCH_PASSAGES = 16
GPU_BATCH_PASSAGES = 256
# Batches handed to a worker at once: seconds of work, so that none waits long for the last at the end of a shard.
TASK_BATCHES = 4
# For fewer passages, starting another worker takes longer than it saves.
PASSAGES_A_WORKER = 512

Vectors = NDArray[np.float32]
Count = Callable[[int], None]
# The number of each shard with its vectors (n, d).
Shards = Generator[tuple[int, Vectors], None, None]


class Engine(Protocol):
    """Makes the vectors of shards."""

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Shards:
        """Each shard as it is finished. `count` receives how many passages each step embedded.

        Closing the generator ends what the engine has begun.
        """
        ...


def embed(work: WorkFolder, rows: VectorRows, engine: Engine, count: Count) -> None:
    """Fill the rows of every shard whose vectors are not on the disk yet. `count` receives how many more are done."""
    left = [shard.number for shard in work.shards if shard.number not in work.embedded]
    with closing(engine.vectors(work, left, count)) as shards:
        for number, vectors in shards:
            work.note_embedded(number, rows.write(work.shards[number].first, vectors))


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
    """Which rows of a shard one call computes: neighbours in length, the longest first."""
    order = sorted(range(len(passages)), key=lambda row: -len(passages[row].title) - len(passages[row].text))
    step = batch * TASK_BATCHES
    return [order[start : start + step] for start in range(0, len(order), step)]


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch computes with one thread, and afterwards with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def load_same(source: EncoderSource, fingerprint: str) -> PassageEncoder:
    """Load the encoder of another process. Raises CheckpointInvalid if its files have changed."""
    encoder = PassageEncoder.load(source.place, device=source.device, dtype=source.dtype)
    if encoder.fingerprint != fingerprint:
        raise CheckpointInvalid(
            checkpoint=encoder.name,
            reason=f"its fingerprint is {encoder.fingerprint} here, {fingerprint} was begun with",
        )
    return encoder


def n_workers(asked: int | None, n_passages: int, *, device: str) -> int:
    """How many processes pay off: one a processor that this process may use, fewer for little work; one for a GPU."""
    if asked is not None:
        return asked
    if device != "cpu":
        return 1
    return max(1, min(len(os.sched_getaffinity(0)), n_passages // PASSAGES_A_WORKER))


@dataclass(frozen=True, slots=True)
class InProcess:
    """Embeds in this process."""

    encoder: PassageEncoder
    batch: int

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Shards:
        for number in numbers:
            yield number, embed_shard(self.encoder, work.read_shard(number), self.batch, count)


@dataclass(frozen=True, slots=True)
class Workers:
    """Embeds in several processes, each with the encoder, which share one shard and then the next."""

    encoder: PassageEncoder
    batch: int
    n_workers: int

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Shards:
        """Raises CheckpointInvalid when a worker loads another encoder, SettingInvalid when the system ends one."""
        # spawn: a process that has computed with torch must not be forked
        context = multiprocessing.get_context("spawn")
        theirs, ours = context.Pipe(duplex=False)
        pool = ProcessPoolExecutor(self.n_workers, mp_context=context, initializer=_begin_worker, initargs=(theirs,))
        try:
            for number in numbers:
                yield number, self._shard(pool, work.read_shard(number), count)
        except BrokenProcessPool as error:
            raise SettingInvalid(
                setting="--workers",
                reason="a worker was ended by the system, as a rule for want of memory; give fewer, and go on",
            ) from error
        finally:
            # ends the workers at once, whatever they still compute
            ours.close()
            pool.shutdown(cancel_futures=True)
            theirs.close()

    def _shard(self, pool: ProcessPoolExecutor, passages: Sequence[Passage], count: Count) -> Vectors:
        vectors = np.empty((len(passages), self.encoder.dimension), dtype=np.float32)  # (n, d)
        begun = {
            pool.submit(
                _encode, self.encoder.source, self.encoder.fingerprint, [passages[row] for row in rows], self.batch
            ): rows
            for rows in tasks(passages, self.batch)
        }
        for task in as_completed(begun):
            made = task.result()
            if isinstance(made, _Failure):
                raise made.kind(**made.data)
            vectors[begun[task]] = made
            count(len(begun[task]))
        return vectors


@dataclass(frozen=True, slots=True)
class _Failure:
    """An OpenbookError between processes: it is made from its data and cannot be pickled itself."""

    kind: type[OpenbookError]
    data: dict[str, Any]


@functools.cache
def _loaded(source: EncoderSource, fingerprint: str) -> PassageEncoder:
    return load_same(source, fingerprint)


def _begin_worker(alive: Connection) -> None:
    # Ctrl-C goes to the whole group of processes: the parent alone answers it and ends its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    disable_progress_bar()
    threading.Thread(target=_end_with_parent, args=(alive,), daemon=True).start()


def _end_with_parent(alive: Connection) -> None:
    """End this process when the parent closes its end of the pipe, by being killed too.

    Without this, a worker whose parent was killed waits for work for ever: it holds both ends of the pool's queue.
    """
    alive.poll(None)
    os._exit(1)


def _encode(source: EncoderSource, fingerprint: str, passages: Sequence[Passage], batch: int) -> Vectors | _Failure:
    try:
        return _loaded(source, fingerprint).encode(passages, batch_size=batch)
    except OpenbookError as error:
        return _Failure(type(error), error.data)
