"""Work on hostile input in a process that can be ended."""

import errno
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import closing
from multiprocessing.context import SpawnProcess

import pytest

from openbook.indexing.sources.guarded import MEMORY_BYTES, TOO_HEAVY, Guarded


def work(what: str) -> str:
    """For the other process."""
    if what == "memory":
        # zeros that nobody touches: asked for, and never taken from the machine
        return str(len(bytearray(MEMORY_BYTES + (64 << 20))))
    if what == "time":
        while True:
            pass
    if what == "death":
        os._exit(1)
    return what


@pytest.fixture
def guarded() -> Iterator[Guarded[str, str]]:
    with closing(Guarded(work, 0.5)) as process:
        yield process


def outcomes(guarded: Guarded[str, str], *items: str) -> list[str]:
    guarded.send(items)
    return guarded.outcomes()


def test_an_item_that_asks_for_too_much_memory_costs_itself(guarded: Guarded[str, str]) -> None:
    assert outcomes(guarded, "a") == ["a"]
    process = guarded.process
    assert outcomes(guarded, "a", "memory", "b") == ["a", TOO_HEAVY, "b"]
    # the bound is one that the process survives
    assert guarded.process is process


@pytest.mark.parametrize("what", ["time", "death"])
def test_an_item_over_which_the_process_dies_costs_itself(guarded: Guarded[str, str], what: str) -> None:
    assert outcomes(guarded, "a", what, "b") == ["a", TOO_HEAVY, "b"]
    assert outcomes(guarded, "c") == ["c"]
    guarded.close()
    assert multiprocessing.active_children() == []


def test_a_system_that_starts_no_process_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: SpawnProcess) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(SpawnProcess, "start", refuse)
    with pytest.raises(OSError, match="Resource temporarily unavailable"), closing(Guarded(work, 0.5)) as guarded:
        guarded.send(["a"])
