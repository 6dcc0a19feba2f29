"""Processes of their own, so that their memory and time do not mix with what is measured."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Self

from openbook.errors import OpenbookError

Progress = Callable[[int, int | None, str], None]


class Child:
    """A process that calls `make(*arguments)` once, and the result of that for each request. A context manager."""

    def __init__(self, make: Callable[..., Callable[[Any], Any]], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._process.join()

    def request(self, content: Any) -> Any:
        """The answer. Raises what the process raised, and EOFError where the process has died."""
        self._pipe.send(content)
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(pipe: Connection, make: Callable[..., Callable[[Any], Any]], arguments: tuple[Any, ...]) -> None:
    answer = make(*arguments)
    while True:
        try:
            content = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(answer(content))
        except Exception as error:
            pipe.send(error)


def in_child(progress: Progress, function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function(told, *arguments)` returns in a process of its own; calls of `told` reach `progress`.

    Raises the OpenbookError that it raises. Raises RuntimeError for any other error, and where the process ends without
    a result, as when the system kills it for its memory.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_run, args=(theirs, function, arguments), daemon=True)
    child.start()
    theirs.close()
    try:
        while True:
            kind, content = ours.recv()
            if kind == "result":
                return content
            if kind == "refused":
                error_class, data = content
                error = error_class.__new__(error_class)
                OpenbookError.__init__(error, **data)
                raise error
            if kind == "failed":
                raise RuntimeError(f"{function.__name__}: {content}")
            progress(*content)
    except EOFError as error:
        child.join()
        raise RuntimeError(f"the process that did {function.__name__} ended with {child.exitcode}") from error
    finally:
        ours.close()
        if child.is_alive():
            child.join(timeout=10)
            child.kill()
        child.join()


def _run(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    def told(done: int, total: int | None, what: str) -> None:
        pipe.send(("progress", (done, total, what)))

    try:
        pipe.send(("result", function(told, *arguments)))
    except OpenbookError as error:
        # its class takes other arguments than an exception that pickle can rebuild
        pipe.send(("refused", (type(error), error.data)))
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))
    finally:
        pipe.close()
