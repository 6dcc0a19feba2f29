"""Processes of their own, so that their memory and time do not mix with what is measured."""

import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from openbook.errors import OpenbookError

Progress = Callable[[int, int | None, str], None]
MEGABYTE = 1e6
SMAPS = Path("/proc/self/smaps_rollup")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes resident in this process: its own, and pages of files, which other processes may share."""

    anonymous: int
    file_mapped: int

    def over(self, before: "Memory") -> "Memory":
        """What is there now and was not there before."""
        return Memory(max(0, self.anonymous - before.anonymous), max(0, self.file_mapped - before.file_mapped))

    def cells(self) -> tuple[float, float]:
        """In MB."""
        return self.anonymous / MEGABYTE, self.file_mapped / MEGABYTE


def memory() -> Memory:
    """The memory of this process now; zeros where the system does not tell it."""
    try:
        lines = SMAPS.read_text(encoding="ascii").splitlines()
    except OSError:
        return Memory(0, 0)
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if line.endswith(" kB")}
    return Memory(sizes["Anonymous"], sizes["Rss"] - sizes["Anonymous"])


def forget_pages(folder: Path) -> None:
    """Tell the system to drop the pages of the files in a folder that no process has mapped."""
    for path in folder.iterdir():
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def silent(done: int, total: int | None, what: str) -> None:
    """Shows nothing."""


class Child:
    """A process that calls `make(told, *arguments)` once, then for each request the function that came back.

    Calls of `told` reach the progress of the request. A context manager.
    """

    def __init__(self, make: Callable[..., Callable[[Any], Any]], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self._pipe.close()
        if error is not None:
            # it may be in the middle of long work that no longer matters
            self._process.join(timeout=10)
            self._process.kill()
        self._process.join()

    def request(self, content: Any, progress: Progress = silent) -> Any:
        """The answer. Raises the error of the process; RuntimeError where it dies, as when its memory is too much."""
        self._pipe.send(content)
        while True:
            kind, found = self._receive()
            if kind == "answer":
                return found
            if kind == "raised":
                raise found
            if kind == "refused":
                error_class, data = found
                error = error_class.__new__(error_class)
                OpenbookError.__init__(error, **data)
                raise error
            progress(*found)

    def _receive(self) -> tuple[str, Any]:
        try:
            received: tuple[str, Any] = self._pipe.recv()
        except EOFError as error:
            self._process.join()
            raise RuntimeError(f"a process of the benchmark ended with {self._process.exitcode}") from error
        return received


def in_child(progress: Progress, function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function(told, *arguments)` returns in a process of its own. Raises what `Child.request` raises."""
    with Child(_calling, function) as child:
        return child.request(arguments, progress)


def _calling(told: Progress, function: Callable[..., Any]) -> Callable[[tuple[Any, ...]], Any]:
    return lambda arguments: function(told, *arguments)


def _serve(pipe: Connection, make: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    def told(done: int, total: int | None, what: str) -> None:
        pipe.send(("told", (done, total, what)))

    answer = make(told, *arguments)
    while True:
        try:
            content = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(("answer", answer(content)))
        except OpenbookError as error:
            # its class takes other arguments than an exception that pickle can rebuild
            pipe.send(("refused", (type(error), error.data)))
        except Exception as error:
            pipe.send(("raised", error))
