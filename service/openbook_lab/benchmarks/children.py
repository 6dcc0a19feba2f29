"""A function in a process of its own, so that what it takes of memory is its alone, and what it says on the way."""

import multiprocessing
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from openbook.errors import OpenbookError

Progress = Callable[[int, int | None, str], None]


def in_child(progress: Progress, function: Callable[..., Any], *arguments: Any) -> Any:
    """What `function(told, *arguments)` returns; `told` reaches `progress`, an OpenbookError is raised here.

    Raises RuntimeError for any other, and where the process ended without a word, as one that was killed for its
    memory does.
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
                raise _error_of(*content)
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


def _error_of(kind: type[OpenbookError], data: dict[str, Any]) -> OpenbookError:
    error = kind.__new__(kind)
    OpenbookError.__init__(error, **data)
    return error


def _run(pipe: Connection, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    def told(done: int, total: int | None, what: str) -> None:
        pipe.send(("progress", (done, total, what)))

    try:
        pipe.send(("result", function(told, *arguments)))
    except OpenbookError as error:
        # an error that is made of its data is sent as that
        pipe.send(("refused", (type(error), error.data)))
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}"))
    finally:
        pipe.close()
