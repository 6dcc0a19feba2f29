"""Threads for calls that wait for a disk or a network: a few for each kind of caller."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """At most `most` threads. Callers of another kind, with threads of their own, never wait for these."""

    def __init__(self, name: str, most: int) -> None:
        self._executor = ThreadPoolExecutor(most, thread_name_prefix=name)

    async def run(self, call: Callable[P, T], /, *given: P.args, **named: P.kwargs) -> T:
        """Run `call` in one of the threads, once one is free."""
        work = partial(copy_context().run, call, *given, **named)
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """Start nothing more. Waits for nothing."""
        self._executor.shutdown(wait=False, cancel_futures=True)
