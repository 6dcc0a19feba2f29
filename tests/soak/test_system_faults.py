"""Calls of the system that fail, one after the other, while a folder of versions changes: what was there stays."""

import errno
import fcntl
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from openbook.errors import OpenbookError
from openbook.storage.history import SwapHistory, SwapRecord
from openbook.storage.index_store import IndexStore
from tests.soak.books import check_book
from tests.soak.killing import KEPT, OPERATIONS, prepare

RECORD = SwapRecord("2026-01-01T00:00:00+00:00", "test", "here", None, "old", "availability", "ok", 1, 0.1)
# the calls on which a power cut, a full disk or a bad one shows first
CALLS = [(os, name) for name in ("open", "write", "fsync", "fstat", "rename", "replace", "unlink")] + [(io, "open")]
MORE_CALLS = [(os, name) for name in ("lstat", "listdir", "scandir", "mkdir", "utime")] + [(fcntl, "flock")]
ACTS: dict[str, tuple[Callable[[Path], object], dict[str, Any], tuple[str, ...]]] = {
    **{name: OPERATIONS[name] for name in ("publish again", "set_current", "publish", "delete", "prune")},
    "append": (lambda folder: SwapHistory(folder).append(RECORD), KEPT, ("old",)),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "template"
    prepare(folder)
    SwapHistory(folder).append(RECORD)
    return folder


class Failing:
    """A function whose n-th call fails. `happened` says whether there was one."""

    def __init__(self, function: Callable[..., Any], nth: int, error: int) -> None:
        self._function = function
        self._left = nth
        self._error = error
        self.happened = False

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            self.happened = True
            raise OSError(self._error, os.strerror(self._error))
        return self._function(*arguments, **named)


def cases() -> Iterator[object]:
    for act in ACTS:
        for module, name in CALLS + MORE_CALLS:
            few = act in ("publish again", "set_current", "append") and (module, name) in CALLS
            marks = () if few else (pytest.mark.slow,)
            yield pytest.param(act, module, name, id=f"{act}-{module.__name__}.{name}", marks=marks)


@pytest.mark.parametrize(("act", "module", "name"), list(cases()))
def test_no_call_that_fails_loses_what_was_published(
    act: str, module: Any, name: str, template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, contents, current = ACTS[act]
    nth, happened = 0, True
    while happened:
        nth += 1
        folder = Path(shutil.copytree(template, tmp_path / str(nth)))
        n_open = n_open_files()
        failing = Failing(getattr(module, name), nth, errno.ENOSPC if name == "write" else errno.EIO)
        with monkeypatch.context() as patched, suppress(OSError, OpenbookError):
            patched.setattr(module, name, failing)
            run(folder)
        happened = failing.happened
        assert n_open_files() == n_open, f"call {nth} left a file open"
        check(folder, contents, current)
        shutil.rmtree(folder)


def n_open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def check(folder: Path, contents: dict[str, Any], current: tuple[str, ...]) -> None:
    """Every version is whole, CURRENT names one, the history has its records, and CURRENT can be written."""
    store = IndexStore(folder)
    for version in store.versions():
        check_book(store, version, [content for content in contents[version] if content is not None])
    assert {version for version, allowed in contents.items() if None not in allowed} <= set(store.versions())
    assert store.current() in current
    assert SwapHistory(folder).last(5)[-1] == RECORD
    store.set_current("old")
    assert not list(folder.glob(".CURRENT-*"))
