"""Worker processes, each with the encoder, that share the work on one shard and then on the next."""

import multiprocessing
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import torch
from transformers.utils.logging import disable_progress_bar

from openbook.entities import Passage
from openbook.errors import CheckpointInvalid, OpenbookError, SettingInvalid
from openbook.indexing.building.embedding import Count, Vectors, load_same, tasks
from openbook.indexing.building.work_folder import WorkFolder
from openbook.indexing.encoder_source import EncoderSource
from openbook.indexing.passage_encoder import PassageEncoder

# Longer than a worker without work takes to end.
PATIENCE_S = 2.0


class Workers:
    """Several processes. They end with this one, however that ends: nobody else holds the other end of their pipes."""

    def __init__(self, encoder: PassageEncoder, batch: int, n_workers: int) -> None:
        self._dimension = encoder.dimension
        self._batch = batch
        self._workers: dict[Connection, BaseProcess] = {}
        # a process that has computed with torch must not be forked
        context = multiprocessing.get_context("spawn")
        for _ in range(n_workers):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(theirs, encoder.source, encoder.fingerprint, batch), daemon=True
            )
            process.start()
            theirs.close()
            self._workers[ours] = process

    def vectors(self, work: WorkFolder, numbers: Sequence[int], count: Count) -> Iterator[tuple[int, Vectors]]:
        for number in numbers:
            yield number, self._shard(work.read_shard(number), count)

    def close(self) -> None:
        for connection in self._workers:
            connection.close()
        for process in self._workers.values():
            process.join(PATIENCE_S)
            # whatever it still computes, nobody waits for it
            process.terminate()
            process.join()
        self._workers = {}

    def _shard(self, passages: Sequence[Passage], count: Count) -> Vectors:
        vectors = np.empty((len(passages), self._dimension), dtype=np.float32)  # (n, d)
        waiting = iter(tasks(passages, self._batch))
        given: dict[Connection, list[int]] = {}
        for connection in self._workers:
            self._give(connection, next(waiting, None), passages, given)
        while given:
            for ready in wait(list(given)):
                connection = next(one for one in given if one is ready)
                rows = given.pop(connection)
                vectors[rows] = self._receive(connection)
                count(len(rows))
                self._give(connection, next(waiting, None), passages, given)
        return vectors

    def _give(
        self,
        connection: Connection,
        rows: list[int] | None,
        passages: Sequence[Passage],
        given: dict[Connection, list[int]],
    ) -> None:
        if rows is None:
            return
        try:
            connection.send([passages[row] for row in rows])
        except BrokenPipeError as error:
            raise _ended() from error
        given[connection] = rows

    def _receive(self, connection: Connection) -> Vectors:
        try:
            received = connection.recv()
        except (EOFError, ConnectionResetError) as error:
            raise _ended() from error
        if isinstance(received, Failure):
            raise received.error()
        vectors: Vectors = received
        return vectors


@dataclass(frozen=True, slots=True)
class Failure:
    """An error of ours on its way between processes: it is made from its data and cannot be pickled itself."""

    kind: type[OpenbookError]
    data: Mapping[str, Any]

    def error(self) -> OpenbookError:
        return self.kind(**self.data)


def _ended() -> SettingInvalid:
    return SettingInvalid(
        setting="--workers",
        reason="a worker was ended by the system, as a rule for want of memory; give fewer, and go on",
    )


def _work(connection: Connection, source: EncoderSource, fingerprint: str, batch: int) -> None:
    """A worker's life: passages come, vectors go, until the other end of the pipe is closed."""
    # whoever pressed Ctrl-C is answered by the parent, which ends its workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    disable_progress_bar()
    try:
        encoder = load_same(source, fingerprint)
        while True:
            connection.send(encoder.encode(connection.recv(), batch_size=batch))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
    except CheckpointInvalid as error:
        connection.send(Failure(type(error), error.data))
