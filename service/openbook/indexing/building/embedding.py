"""The second step of a build: the vectors of each shard, made by one process or by several.

What is computed together decides the last bits of a vector. So a shard is always cut into the same batches, one
thread computes each, and any number of workers makes the same bytes. (Another kind of processor, or a GPU, does not.)
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from transformers.utils.logging import disable_progress_bar

from openbook.entities import Passage
from openbook.errors import OpenbookError, SettingInvalid
from openbook.indexing.building.work_folder import WorkFolder
from openbook.indexing.passage_encoder import EncoderSource, PassageEncoder

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


@dataclass(frozen=True, slots=True)
class NamedEncoder:
    """The encoder that made the vectors, by name; it embeds nothing. An unknown fingerprint is empty."""

    name: str
    fingerprint: str
    dimension: int
    precision: str = "as given"
    device: str = "cpu"


class ShardReader(Protocol):
    """Whose passages are embedded: a work folder, or a part of each of its shards."""

    def read_shard(self, number: int) -> list[Passage]: ...


class Engine(Protocol):
    """Makes the vectors of shards."""

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Shards:
        """Each shard as it is finished. `count` receives how many passages each step embedded.

        Closing the generator ends what the engine has begun.
        """
        ...


def embed_shard(
    encoder: PassageEncoder, passages: Sequence[Passage], batch: int, count: Count | None = None
) -> Vectors:
    """The vectors of a shard in its order (n, d), each batch by one thread."""
    vectors = np.empty((len(passages), encoder.dimension), dtype=np.float32)  # (n, d)
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for rows in tasks(passages, batch):
            vectors[rows] = encoder.encode([passages[row] for row in rows], batch_size=batch)
            if count is not None:
                count(len(rows))
    finally:
        torch.set_num_threads(n_threads)
    return vectors


def tasks(passages: Sequence[Passage], batch: int) -> list[list[int]]:
    """Which rows of a shard one call computes: neighbours in length, the longest first."""
    order = sorted(range(len(passages)), key=lambda row: -len(passages[row].heading) - len(passages[row].text))
    step = batch * TASK_BATCHES
    return [order[start : start + step] for start in range(0, len(order), step)]


def batch_passages(device: str) -> int:
    """How many passages are embedded together."""
    return BATCH_PASSAGES if device == "cpu" else GPU_BATCH_PASSAGES


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

    def vectors(self, work: ShardReader, numbers: Sequence[int], count: Count) -> Shards:
        batch = batch_passages(self.encoder.device)
        for number in numbers:
            yield number, embed_shard(self.encoder, work.read_shard(number), batch, count)


@dataclass(frozen=True, slots=True)
class Workers:
    """Embeds in several processes, each with the encoder, which share one shard and then the next.

    Each worker has a pipe of its own. The workers of a ProcessPoolExecutor share one, and a worker that dies in the
    middle of a result leaves the pool waiting for the rest of it for ever.
    """

    encoder: PassageEncoder
    n_workers: int

    def vectors(self, work: ShardReader, numbers: Sequence[int], count: Count) -> Shards:
        """Raises CheckpointInvalid when a worker loads another encoder, SettingInvalid when the system ends one."""
        workers: dict[Connection, BaseProcess] = {}
        # spawn: a process that has computed with torch must not be forked
        context = multiprocessing.get_context("spawn")
        batch = batch_passages(self.encoder.device)
        try:
            for _ in range(self.n_workers):
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs, self.encoder.source, batch), daemon=True)
                process.start()
                # the worker alone holds its end now, and ends when this process closes the other or dies
                theirs.close()
                workers[ours] = process
            for number in numbers:
                yield number, self._shard(list(workers), work.read_shard(number), count)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise SettingInvalid(
                setting="--workers",
                reason="the system ended a worker, usually for lack of memory; give fewer, and repeat the command",
            ) from error
        finally:
            for connection, worker in workers.items():
                connection.close()
                worker.terminate()
                worker.join()

    def _shard(self, workers: Sequence[Connection], passages: Sequence[Passage], count: Count) -> Vectors:
        vectors = np.empty((len(passages), self.encoder.dimension), dtype=np.float32)  # (n, d)
        waiting = tasks(passages, batch_passages(self.encoder.device))[::-1]
        free, given = list(workers), dict[Connection, list[int]]()
        while waiting or given:
            while waiting and free:
                rows, worker = waiting.pop(), free.pop()
                worker.send([passages[row] for row in rows])
                given[worker] = rows
            for worker in given.keys() & wait(list(given)):
                made = worker.recv()
                if isinstance(made, _Failure):
                    raise made.kind(**made.data)
                rows = given.pop(worker)
                vectors[rows] = made
                free.append(worker)
                count(len(rows))
        return vectors


def engine_of(encoder: PassageEncoder, workers: int | None, n_passages: int) -> InProcess | Workers:
    """What embeds so many passages on this machine, in as many processes as were asked for or as pay off."""
    chosen = n_workers(workers, n_passages, device=encoder.device)
    return InProcess(encoder) if chosen == 1 else Workers(encoder, chosen)


@dataclass(frozen=True, slots=True)
class _Failure:
    """An OpenbookError between processes: it is made from its data and cannot be pickled itself."""

    kind: type[OpenbookError]
    data: dict[str, Any]


def _work(connection: Connection, source: EncoderSource, batch: int) -> None:
    """A worker's life: it receives passages and sends vectors until the parent closes the other end of the pipe."""
    # Ctrl-C goes to the whole group of processes: the parent alone answers it and ends its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    disable_progress_bar()
    try:
        encoder = source.load()
        while True:
            connection.send(encoder.encode(connection.recv(), batch_size=batch))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except OpenbookError as error:
        connection.send(_Failure(type(error), error.data))
