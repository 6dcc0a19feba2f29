"""Pages read in processes of their own, in the order in which they came.

Not for speed alone: markup can be made on which a parser runs for hours or takes all memory, and only the end of its
process stops it. A process that dies over a page costs that page.
"""

import multiprocessing
import resource
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from openbook.indexing.sources.dump.cutting import PageBytes
from openbook.indexing.sources.dump.page import Article, NotAnArticle, read_article

# Seconds of processor time, not of the clock: a busy machine loses the same pages as a quiet one. Long articles take a
# fifth of a second.
PAGE_SECONDS = 20.0
WORKER_BYTES = 2 << 30
# Enough work at once that handing it over costs nothing, little enough that the processes end together.
TASK_BYTES = 256 << 10
TASK_PAGES = 256

Task = list[PageBytes]
# An article, or the reason why there is none.
Outcome = Article | str


class WorkerFailed(RuntimeError):
    """A process ended before it could read any page."""


class PageReaders:
    """Reads pages in `processes` processes, which end with `close`, or with this process."""

    def __init__(
        self,
        *,
        files: frozenset[str],
        processes: int = 1,
        page_seconds: float = PAGE_SECONDS,
        worker_bytes: int = WORKER_BYTES,
    ) -> None:
        """Raises ValueError when `processes` is below 1."""
        if processes < 1:
            raise ValueError(f"processes must be at least 1, got {processes}")
        self._limits = (files, page_seconds, worker_bytes)
        self._workers: list[_Worker] = []
        self._processes = processes

    def read(self, pages: Iterable[PageBytes]) -> Iterator[tuple[PageBytes, Outcome]]:
        """Every page with its outcome, in their order. Holds a task a process, and the next one."""
        busy: deque[_Worker] = deque()
        for number, task in enumerate(_tasks(pages)):
            if number == len(self._workers) < self._processes:
                self._workers.append(_Worker(*self._limits))
            worker = self._workers[number % len(self._workers)]
            if len(busy) < len(self._workers):
                worker.begin(task)
            else:
                # the worker of the oldest task: it gets the next one before its outcomes are handed on
                done = busy.popleft().finish()
                worker.begin(task)
                yield from done
            busy.append(worker)
        for worker in busy:
            yield from worker.finish()

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers.clear()


class _Worker:
    """One process and the task that it has."""

    def __init__(self, files: frozenset[str], page_seconds: float, worker_bytes: int) -> None:
        self._arguments = (files, page_seconds, worker_bytes)
        self._task: Task = []
        self._start()

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
            self.stop()
            raise WorkerFailed(f"a process to read pages ended with {self._process.exitcode} at its start") from error

    def begin(self, task: Task) -> None:
        self._task = task
        self._send(task)

    def finish(self) -> list[tuple[PageBytes, Outcome]]:
        """The pages of the task with their outcomes. After the death of the process, each page is read alone."""
        outcomes = self._receive()
        if outcomes is None:
            outcomes = []
            for page in self._task:
                self._send([page])
                outcomes += self._receive() or ["too heavy"]
        return list(zip(self._task, outcomes, strict=True))

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()
        self._connection.close()

    def _send(self, pages: Task) -> None:
        with suppress(BrokenPipeError):  # the process died; `_receive` notices
            self._connection.send([page.data for page in pages])

    def _receive(self) -> list[Outcome] | None:
        """None when the process died; another one has then taken its place."""
        try:
            outcomes: list[Outcome] = self._connection.recv()
            return outcomes
        except (EOFError, ConnectionResetError):
            self.stop()
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


def serve_pages(connection: Connection, files: frozenset[str], page_seconds: float, worker_bytes: int) -> None:
    """The life of a process: lists of pages in, lists of outcomes out, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)  # ends the process, even in the midst of the parser
    _limit_memory(worker_bytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    connection.send("ready")
    while True:
        try:
            pages: list[bytes | None] = connection.recv()
        except EOFError:
            return
        outcomes: list[Outcome] = []
        for page in pages:
            signal.setitimer(signal.ITIMER_VIRTUAL, page_seconds)
            outcomes.append("" if page is None else _outcome(page, files))
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        try:
            connection.send(outcomes)
        except BrokenPipeError:
            return


def _limit_memory(n_bytes: int) -> None:
    """Let this process take `n_bytes` more than it has."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + n_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def _outcome(page: bytes, files: frozenset[str]) -> Outcome:
    try:
        return read_article(page, files)
    except NotAnArticle as reason:
        return reason.reason
    except MemoryError:
        return "too heavy"
