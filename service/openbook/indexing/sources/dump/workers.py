"""Pages read in processes of their own, in the order in which they came.

Not for speed alone: markup can be made on which a parser runs for hours or takes all memory, and nothing but the end of
its process stops it. A process that dies over a page costs that page.
"""

import multiprocessing
import resource
import signal
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from openbook.indexing.sources.dump.cutting import PageBytes
from openbook.indexing.sources.dump.page import Article, NotAnArticle, read_article

# Seconds of processor time, not of the clock: the same pages fall to it on a busy machine as on a quiet one. Long
# articles take a fifth of one.
PAGE_SECONDS = 20.0
WORKER_BYTES = 2 << 30
# Enough work at once that handing it over costs nothing, little enough that the processes end together.
TASK_BYTES = 256 << 10
TASK_PAGES = 256
TASKS_AHEAD = 3

# An article, or the reason for which there is none.
Outcome = Article | str


class WorkerFailed(RuntimeError):
    """A process could not even begin to read pages: that is no page's fault."""


@dataclass(slots=True)
class _Task:
    pages: list[PageBytes] = field(default_factory=list)
    n_bytes: int = 0
    outcomes: list[Outcome] | None = None


class PageReaders:
    """Reads pages in `processes` processes, which end with `close`, or with the process that made this."""

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
        """Every page with its outcome, in their order. Holds a few tasks a process, however many pages there are."""
        tasks = _tasks(pages)
        waiting: deque[_Task] = deque()
        ended = False
        while True:
            while not ended and len(waiting) < TASKS_AHEAD * self._processes:
                task = next(tasks, None)
                if task is None:
                    ended = True
                else:
                    waiting.append(task)
                    self._begin(task)
            if not waiting:
                return
            self._work_until_done(waiting)
            task = waiting.popleft()
            yield from zip(task.pages, task.outcomes or (), strict=True)

    def close(self) -> None:
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def _begin(self, task: _Task) -> None:
        """Give the task to a process that has nothing to do, or leave it for one that will."""
        idle = next((worker for worker in self._workers if worker.task is None), None)
        if idle is None and len(self._workers) < self._processes:
            idle = _Worker(*self._limits)
            self._workers.append(idle)
        if idle is not None and task.outcomes is None:
            idle.begin(task)

    def _work_until_done(self, waiting: deque[_Task]) -> None:
        """Return once the first task is done; keep every process busy until then."""
        while waiting[0].outcomes is None:
            begun = {id(worker.task) for worker in self._workers}
            for task in waiting:
                if task.outcomes is None and id(task) not in begun:
                    self._begin(task)
            busy = {worker.connection: worker for worker in self._workers if worker.task is not None}
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]  # wait gives back what it was given
                worker.finish()


class _Worker:
    """One process and the task that it has."""

    def __init__(self, files: frozenset[str], page_seconds: float, worker_bytes: int) -> None:
        self._arguments = (files, page_seconds, worker_bytes)
        self.task: _Task | None = None
        self._start()

    def _start(self) -> None:
        # spawn: a fork would take over threads' locks that nobody opens again
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self._process = context.Process(target=serve_pages, args=(other, *self._arguments), daemon=True)
        self._process.start()
        other.close()
        try:
            self.connection.recv()
        except EOFError as error:
            self.stop()
            raise WorkerFailed(f"a process to read pages ended with {self._process.exitcode} at its start") from error

    def begin(self, task: _Task) -> None:
        self.task = task
        self._send([page.data for page in task.pages])

    def finish(self) -> None:
        """Take the outcomes of the task, or find the pages over which the process died."""
        task = self.task
        if task is None:
            return
        outcomes = self._receive()
        if outcomes is None:
            outcomes = [outcome for page in task.pages for outcome in self._alone(page)]
        task.outcomes = outcomes
        self.task = None

    def stop(self) -> None:
        self._process.terminate()
        self._process.join()
        self.connection.close()

    def _alone(self, page: PageBytes) -> list[Outcome]:
        self._send([page.data])
        return self._receive() or ["too heavy"]

    def _send(self, pages: list[bytes | None]) -> None:
        with suppress(BrokenPipeError):  # it died; `_receive` finds out
            self.connection.send(pages)

    def _receive(self) -> list[Outcome] | None:
        """None when the process died; then another one has taken its place."""
        try:
            outcomes: list[Outcome] = self.connection.recv()
            return outcomes
        except (EOFError, ConnectionResetError):
            self.stop()
            self._start()
            return None


def _tasks(pages: Iterable[PageBytes]) -> Iterator[_Task]:
    task = _Task()
    for page in pages:
        task.pages.append(page)
        task.n_bytes += len(page.data or b"")
        if task.n_bytes >= TASK_BYTES or len(task.pages) >= TASK_PAGES:
            yield task
            task = _Task()
    if task.pages:
        yield task


def serve_pages(connection: Connection, files: frozenset[str], page_seconds: float, worker_bytes: int) -> None:
    """The life of a process: lists of pages in, lists of outcomes out, until the other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever began this process ends it
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
