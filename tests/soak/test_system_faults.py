"""System calls that fail, one after the other: what was published stays, and a service says what is wrong and goes on.

Short: functions of Python's own modules fail while a version is published. Long: strace lets system calls fail, so that
FAISS, Arrow and NumPy meet them too.
"""

import errno
import fcntl
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from openbook.errors import OpenbookError
from openbook.storage.history import SwapHistory, SwapRecord
from openbook.storage.index_store import IndexStore
from tests.fixtures.summary import Summary
from tests.places import ROOT
from tests.soak.books import check_book
from tests.soak.clients import COLOURS, QUESTIONS, body_of, mixture
from tests.soak.conftest import Serve
from tests.soak.killing import KEPT, OPERATIONS, prepare
from tests.soak.servers import Server
from tests.soak.tracing import injected, why_no_strace

FAULTED_ACTS = ("publish", "publish again", "delete", "prune", "set_current", "bm25")
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


@pytest.fixture(scope="module")
def strace() -> None:
    reason = why_no_strace()
    if reason:
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("act", FAULTED_ACTS)
def test_no_system_call_that_fails_loses_what_was_published(
    act: str, strace: None, tmp_path: Path, summary: Summary
) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.soak.faulting", act, str(tmp_path)]
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout)
    summary(f"{act}: {found['done']} faults of system calls, {found['failed']} said so, {len(found['wrong'])} wrong")
    assert found["wrong"] == []


# Calls, what happens to them, and which of them; no system says EINTR or EAGAIN for ever.
EVERY, SOME, FEW = "1+1", "2+3", "2+2"
ALWAYS = (EVERY, SOME)
SERVICE_FAULTS: dict[str, dict[str, tuple[str, ...]]] = {
    "openat": {"EMFILE": ALWAYS, "EIO": ALWAYS, "ENOMEM": ALWAYS, "EINTR": (FEW,)},
    "read": {"EIO": ALWAYS, "EINTR": (FEW,)},
    "pread64": {"EIO": ALWAYS},
    "mmap": {"ENOMEM": (EVERY, SOME, FEW)},
    "madvise": {"ENOMEM": ALWAYS},
    "fstat": {"EIO": ALWAYS, "ENOMEM": ALWAYS},
    "newfstatat": {"EIO": ALWAYS, "ENOMEM": ALWAYS},
    "lseek": {"EIO": ALWAYS},
    "getdents64": {"EIO": ALWAYS},
    "write": {"ENOSPC": ALWAYS, "EIO": ALWAYS, "EINTR": (FEW,)},
    "fsync": {"EIO": ALWAYS, "ENOSPC": ALWAYS},
    "rename,renameat,renameat2": {"ENOSPC": ALWAYS, "EIO": ALWAYS},
    "mkdir,mkdirat": {"ENOSPC": ALWAYS},
    "unlink,unlinkat": {"EIO": ALWAYS},
    "ftruncate": {"EIO": ALWAYS},
    "flock": {"ENOLCK": ALWAYS, "EIO": ALWAYS, "EINTR": (FEW,), "EAGAIN": (FEW,)},
    "clone3,clone": {"EAGAIN": ALWAYS, "ENOMEM": ALWAYS},
    "accept4": dict.fromkeys(("EMFILE", "ENOMEM", "EINTR", "EAGAIN", "ECONNABORTED"), (FEW,)),
}
# of an answer, also one that waits until asyncio accepts connections again
PATIENCE_S = 20.0


@pytest.fixture
def server(strace: None, serve: Serve) -> Iterator[Server]:
    """Alone on its folder: another one would follow its swaps."""
    server = serve(residents=2, follow_s=0.1)
    server.wait_until_ready()
    server.patience_s = PATIENCE_S
    yield server
    server.kill()


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("calls", SERVICE_FAULTS)
def test_a_service_answers_or_says_why_not_while_system_calls_fail(
    calls: str, server: Server, store: IndexStore
) -> None:
    # the C library also maps memory: a machine without any answers nothing
    paths = files(store) if calls == "mmap" else ()
    for error, places in SERVICE_FAULTS[calls].items():
        for when in places:
            live = server.live()
            assert live is not None
            other = next(version for version in COLOURS if version != live)
            with injected(server.pid, calls, f"error={error}:when={when}", paths):
                wrong = [f"{error} {when}: {one}" for one in asked(server, live, other)]
            if calls.startswith("clone3"):
                # there is no code of its own for a system that starts no thread
                wrong = [one for one in wrong if "internal_error" not in one]
            assert wrong == []
            check_service(server, store)
            # a lock that is kept would keep other processes from swapping; filelock keeps what it cannot unlock
            if calls != "flock":
                with IndexStore(store.folder).lock.acquire(timeout=5):
                    pass


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_service_refuses_a_version_whose_files_end_too_soon(server: Server, store: IndexStore) -> None:
    for when in (EVERY, SOME, FEW, "3", "4", "5"):
        live = server.live()
        assert live is not None
        other = next(version for version in COLOURS if version != live)
        with injected(server.pid, "read,pread64", f"retval=0:when={when}", files(store)):
            assert asked(server, live, other) == []
        check_service(server, store)


def files(store: IndexStore) -> tuple[Path, ...]:
    return tuple(path for path in store.folder.rglob("*") if path.is_file())


def asked(server: Server, live: str, other: str) -> list[str]:
    """Every call about the index, with questions between; what was wrong with the replies."""
    answer = ("POST", "/answer", body_of(QUESTIONS[0]))
    wrong = []
    for method, path, body in (
        answer,
        ("POST", "/index/load", {"version": other}),
        ("POST", "/index/swap", {"version": live}),
        answer,
        ("POST", "/index/swap", {"version": live, "policy": "resource"}),
        ("GET", "/index", None),
        ("POST", "/index/swap", {"version": other, "verify": "checksum"}),
        answer,
        ("GET", f"/index/{other}", None),
        ("GET", "/index/history", None),
        ("POST", "/index/rollback", {"policy": "resource"}),
        ("GET", "/index/swap", None),
        answer,
        ("GET", "/readyz", None),
        ("GET", "/metrics", None),
    ):
        try:
            reply = server.call(method, path, body)
        except (OSError, HTTPException) as error:
            wrong.append(f"{method} {path}: {error!r}")
            continue
        if reply.status == 200:
            mixed = mixture(reply.body, None) if path == "/answer" else None
            wrong += [f"{method} {path}: {mixed}"] if mixed else []
        elif reply.headers["content-type"] != "application/problem+json" or reply.body["code"] == "internal_error":
            wrong.append(f"{method} {path}: {reply.status} {reply.body}")
    return wrong


def check_service(server: Server, store: IndexStore) -> None:
    """It is ready, serves what it says, every version is whole, and it swaps as if nothing had been."""
    server.wait_until_ready()
    assert set(store.versions()) == set(COLOURS)
    for version in COLOURS:
        store.verify(version)
    assert store.current() in COLOURS
    for version in (*COLOURS, *COLOURS):
        reply = server.swap(version)
        assert (reply.status, reply.body.get("durable")) == (200, True), reply.body
        assert store.current() == version
        answer = server.call("POST", "/answer", body_of(QUESTIONS[0]))
        assert (answer.status, answer.body["index"]["version"]) == (200, version)
        assert mixture(answer.body, None) is None
    newest = server.call("GET", "/index/history").body["swaps"][0]
    assert (newest["version"], newest["outcome"]) == (version, "ok")
    assert not list(store.folder.glob(".CURRENT-*"))
