"""Each contestant in a process of its own: its memory is its own, and all take turns at the same moment."""

import multiprocessing
import resource
import sys
import warnings
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType

import torch
from transformers.utils import logging as hf_logging

from openbook_lab.benchmarks.engine_contestants import load
from openbook_lab.benchmarks.engine_work import ContestantName, ModeName, Outcome, Work


class ContestantProcess:
    """Started when made, ready when the first answer comes back. Use it as a context manager."""

    def __init__(self, name: ContestantName, folder: Path, work: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, name, folder, work), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> "ContestantProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._process.join()

    def run(self, mode: ModeName, threads: int) -> tuple[Outcome, int]:
        """One answer, and the largest memory that the process has had until now, in bytes. Raises EOFError where it
        has died."""
        self._connection.send((mode, threads))
        outcome, peak = self._connection.recv()
        return outcome, peak


def _serve(connection: Connection, name: ContestantName, folder: Path, work: Work) -> None:
    warnings.simplefilter("ignore")
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    contestant = load(name, folder, work)
    while True:
        try:
            mode, threads = connection.recv()
        except EOFError:
            return
        torch.set_num_threads(threads)
        outcome = contestant.run(mode)
        connection.send((outcome, peak_bytes()))


def peak_bytes() -> int:
    """The largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
