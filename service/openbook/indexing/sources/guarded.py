"""Work on hostile input in another process, which has a limit of time and of memory.

Input can be made on which a parser runs for hours or takes all memory, and only the end of its process stops it. A
process that dies over an item costs that item.
"""

import multiprocessing
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Generic, TypeVar

MEMORY_BYTES = 2 << 30
TOO_HEAVY = "too heavy"

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


class WorkerFailed(RuntimeError):
    """The process ended before it could do any work."""


class Guarded(Generic[Item, Outcome]):
    """Calls a function in a process of its own, from the first items until `close` or the end of this process."""

    def __init__(self, function: Callable[[Item], Outcome], seconds: float) -> None:
        """`function` can be pickled. `seconds` of processor time, not of the clock, are what an item may take: a busy
        machine loses the same items as a quiet one."""
        self._arguments = (function, seconds)
        self._items: Sequence[Item] = ()
        self.process: BaseProcess | None = None

    def send(self, items: Sequence[Item]) -> None:
        """Hand over items; `outcomes` must be called before the next."""
        if self.process is None:
            self._start()
        self._items = items
        self._give(items)

    def outcomes(self) -> list[Outcome | str]:
        """The outcome of each item that was sent, TOO_HEAVY for one over which the process died."""
        items, self._items = self._items, ()
        outcomes = self._receive() if items else []
        if outcomes is None:
            outcomes = []
            # one of them ended it: each alone
            for item in items:
                self._give([item])
                outcomes += self._receive() or [TOO_HEAVY]
        return outcomes

    def close(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.join()
            self._connection.close()

    def _start(self) -> None:
        # spawn: a fork would copy locks that other threads hold and nothing releases
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        process = context.Process(target=serve, args=(other, *self._arguments), daemon=True)
        process.start()
        self.process = process
        other.close()
        try:
            self._connection.recv()
        except EOFError as error:
            self.close()
            raise WorkerFailed(f"a process ended with {process.exitcode} at its start") from error

    def _give(self, items: Sequence[Item]) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # the process died; `_receive` notices
            self._connection.send(items)

    def _receive(self) -> list[Outcome | str] | None:
        """None when the process died; another one has then taken its place."""
        try:
            outcomes: list[Outcome | str] = self._connection.recv()
            return outcomes
        except (EOFError, ConnectionResetError):
            self.close()
            self._start()
            return None


def serve(connection: Connection, function: Callable[[Item], Outcome], seconds: float) -> None:
    """The life of the process: lists of items in, lists of outcomes out, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)  # ends the process, even in the midst of a parser in C
    _limit_memory()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send("ready")
    with suppress(EOFError, BrokenPipeError):
        while True:
            outcomes: list[Outcome | str] = []
            for item in connection.recv():
                signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
                try:
                    outcomes.append(function(item))
                except MemoryError:
                    outcomes.append(TOO_HEAVY)
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            connection.send(outcomes)


def _limit_memory() -> None:
    """Let this process take MEMORY_BYTES more than it has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
