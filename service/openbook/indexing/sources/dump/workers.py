"""Pages read in another process, in the order in which they came.

Markup can be made on which a parser runs for hours or takes all memory, and only the end of its process stops it. A
process that dies over a page costs that page.
"""

import multiprocessing
import resource
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from openbook.indexing.sources.dump.cutting import PageBytes
from openbook.indexing.sources.dump.page import DumpArticle, read_article

# Seconds of processor time, not of the clock: a busy machine loses the same pages as a quiet one. Long articles take a
# fifth of a second.
PAGE_SECONDS = 20.0
WORKER_BYTES = 2 << 30
# Enough work at once that handing it over costs nothing, little enough that cutting pages does not wait for it.
TASK_BYTES = 256 << 10
TASK_PAGES = 256

Task = list[PageBytes]
# An article, or the reason why there is none.
Outcome = DumpArticle | str


class WorkerFailed(RuntimeError):
    """The process ended before it could read any page."""


class PageReader:
    """Reads pages in a process of its own, which ends with `close`, or with this process."""

    def __init__(self, files: frozenset[str], page_seconds: float = PAGE_SECONDS) -> None:
        self._arguments = (files, page_seconds)
        self._start()

    def read(self, pages: Iterable[PageBytes]) -> Iterator[tuple[PageBytes, Outcome]]:
        """Every page with its outcome, in their order. The process reads a task while this one cuts out the next."""
        waiting: Task = []
        for task in _tasks(pages):
            outcomes = self._outcomes(waiting)
            self._send(task)
            yield from zip(waiting, outcomes, strict=True)
            waiting = task
        yield from zip(waiting, self._outcomes(waiting), strict=True)

    def close(self) -> None:
        self._process.terminate()
        self._process.join()
        self._connection.close()

    def _start(self) -> None:
        # spawn: a fork would copy locks that other threads hold and nothing releases
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=serve_pages, args=(other, *self._arguments), daemon=True)
        self._process.start()
        other.close()
        try:
            self._connection.recv()
        except EOFError as error:
            self.close()
            raise WorkerFailed(f"a process to read pages ended with {self._process.exitcode} at its start") from error

    def _outcomes(self, task: Task) -> list[Outcome]:
        """The outcomes of the task that was sent. After the death of the process, each page is read alone."""
        outcomes = self._receive() if task else []
        if outcomes is None:
            outcomes = []
            for page in task:
                self._send([page])
                outcomes += self._receive() or ["too heavy"]
        return outcomes

    def _send(self, pages: Task) -> None:
        with suppress(BrokenPipeError):  # the process died; `_receive` notices
            self._connection.send([page.data for page in pages])

    def _receive(self) -> list[Outcome] | None:
        """None when the process died; another one has then taken its place."""
        try:
            outcomes: list[Outcome] = self._connection.recv()
            return outcomes
        except (EOFError, ConnectionResetError):
            self.close()
            self._start()
            return None


def _tasks(pages: Iterable[PageBytes]) -> Iterator[Task]:
    task: Task = []
    n_bytes = 0
    for page in pages:
        task.append(page)
        n_bytes += len(page.data or b"")
        if n_bytes >= TASK_BYTES or len(task) >= TASK_PAGES:
            yield task
            task, n_bytes = [], 0
    if task:
        yield task


def serve_pages(connection: Connection, files: frozenset[str], page_seconds: float) -> None:
    """The life of the process: lists of pages in, lists of outcomes out, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)  # ends the process, even in the midst of the parser
    _limit_memory()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send("ready")
    with suppress(EOFError, BrokenPipeError):
        while True:
            outcomes: list[Outcome] = []
            for page in connection.recv():
                signal.setitimer(signal.ITIMER_VIRTUAL, page_seconds)
                outcomes.append("" if page is None else _read(page, files))
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            connection.send(outcomes)


def _limit_memory() -> None:
    """Let this process take WORKER_BYTES more than it has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + WORKER_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _read(page: bytes, files: frozenset[str]) -> Outcome:
    try:
        return read_article(page, files)
    except MemoryError:
        return "too heavy"
