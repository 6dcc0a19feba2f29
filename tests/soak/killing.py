"""A process that forks, does one thing in the child, and kills the child before the n-th line of storage or swap code.

`python -m tests.soak.killing OPERATION KILLS FOLDER` sweeps n over so many lines, or over all of them for 0, and after
each kill looks at the folder as the next process would find it. It writes one JSON object: how many lines the operation
has, how many children were killed, and what was found wrong. The product has no fault points: lines are counted by
`sys.settrace`.

Nothing here starts a thread before a fork, and torch is not imported, so that a child costs milliseconds.
"""

import json
import os
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import openbook
from openbook.indexing.publishing import delete_version, prune
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import MANIFEST
from tests.soak.books import check_book, publish_book, swap_to

PACKAGE = Path(openbook.__file__).parent
TRACED = tuple(str(PACKAGE / room) for room in ("storage", "indexing", "application"))
# Longer than any child of these takes on a busy machine.
STUCK_AFTER_S = 60


def publish(folder: Path) -> None:
    publish_book(IndexStore(folder), "new")


def publish_again(folder: Path) -> None:
    publish_book(IndexStore(folder), "old", "second", replace=True)


def delete(folder: Path) -> None:
    delete_version(IndexStore(folder), "other")


def prune_replaced(folder: Path) -> None:
    prune(IndexStore(folder), older_than_s=0)


def set_current(folder: Path) -> None:
    IndexStore(folder).set_current("other")


def swap(folder: Path) -> None:
    swap_to(folder, "old", "other", policy="availability")


def swap_letting_go(folder: Path) -> None:
    swap_to(folder, "old", "other", policy="resource")


# What each does, the contents that each version may have after it, and what CURRENT may name. "old" and "other" are
# there before, with CURRENT on "old"; a version that need not be there may have the content None.
OPERATIONS: dict[str, tuple[Callable[[Path], None], dict[str, tuple[str | None, ...]], tuple[str, ...]]] = {
    "publish": (publish, {"old": ("old",), "other": ("other",), "new": (None, "new")}, ("old",)),
    "publish again": (publish_again, {"old": ("old", "second"), "other": ("other",)}, ("old",)),
    "delete": (delete, {"old": ("old",), "other": (None, "other")}, ("old",)),
    "prune": (prune_replaced, {"old": ("old",), "other": ("other",)}, ("old",)),
    "set_current": (set_current, {"old": ("old",), "other": ("other",)}, ("old", "other")),
    "swap": (swap, {"old": ("old",), "other": ("other",)}, ("old", "other")),
    "swap letting go": (swap_letting_go, {"old": ("old",), "other": ("other",)}, ("old", "other")),
}


def sweep(operation: str, wanted_kills: int, folder: Path) -> dict[str, Any]:
    """Kill before the first line, before the last, and evenly between; after each, look."""
    act, contents, current = OPERATIONS[operation]
    template = folder / "template"
    in_child(lambda: prepare(template))
    reader, writer = os.pipe()
    lines = count_lines(act, shutil.copytree(template, folder / "counted"), reader, writer)
    kills = 0
    failures = []
    stride = max(1, lines // wanted_kills) if wanted_kills else 1
    for n in sorted({*range(1, lines + 1, stride), lines}):
        place = shutil.copytree(template, folder / f"killed-{n}")
        ended = in_child(lambda place=place, n=n: traced(lambda: act(place), n))
        kills += ended == -signal.SIGKILL
        if ended not in (0, -signal.SIGKILL):
            failures.append(f"line {n}: the child ended with {ended}")
        complaint = said_by_child(lambda place=place: look(place, contents, current))
        if complaint:
            failures.append(f"line {n}: {complaint}")
        shutil.rmtree(place)
    return {"operation": operation, "lines": lines, "killed": kills, "failures": failures}


def prepare(template: Path) -> None:
    store = IndexStore(template)
    for version in ("old", "other"):
        publish_book(store, version)
    # something to prune
    publish_book(store, "old", replace=True)
    publish_book(store, "gone")
    delete_version(store, "gone")
    store.set_current("old")


def look(folder: Path, contents: dict[str, tuple[str | None, ...]], current: tuple[str, ...]) -> None:
    """As whoever comes next: list, verify, open, answer; swap; publish again, after which nothing is left over."""
    store = IndexStore(folder)
    listed = store.versions()
    for version, allowed in contents.items():
        if version in listed:
            check_book(store, version, [content for content in allowed if content is not None])
        elif None not in allowed:
            raise AssertionError(f"{version} is gone; there is {listed}")
    if set(listed) - set(contents):
        raise AssertionError(f"listed is {listed}")
    if store.current() not in current:
        raise AssertionError(f"CURRENT names {store.current()}")
    if "other" not in listed:
        publish_book(store, "other")
    live = store.default_version()
    target = next(version for version in ("old", "other") if version != live)
    swap_to(folder, live, target, policy="availability")
    newest = SwapHistory(folder).last(1)
    if [(record.version, record.outcome) for record in newest] != [(target, "ok")]:
        raise AssertionError(f"the history ends with {newest}")
    for version in contents:
        publish_book(store, version, replace=True)
        check_book(store, version, [version])
    prune(store, older_than_s=0)
    left = {path.name for path in folder.iterdir()} - {*contents, "CURRENT", "history.jsonl", ".lock"}
    for version in contents:
        named = {folder / version / MANIFEST, *(store.file(version, name) for name in store.info(version).files)}
        left |= {str(path) for path in (folder / version).rglob("*") if path.is_file() and path not in named}
    if left:
        raise AssertionError(f"left over: {sorted(left)}")


def count_lines(act: Callable[[Path], None], place: Path, reader: int, writer: int) -> int:
    def counted() -> None:
        os.write(writer, str(traced(lambda: act(place))).encode())

    ended = in_child(counted)
    if ended != 0:
        raise RuntimeError(f"the operation itself ended with {ended}")
    return int(os.read(reader, 64))


def traced(act: Callable[[], None], kill_at: int = sys.maxsize) -> int:
    """Run `act` in all its threads, count the lines of ours that it begins, and end the process before one of them."""
    count = 0

    def on_line(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if event == "line":
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return on_line

    def on_call(frame: FrameType, event: str, _: object) -> Any:
        return on_line if frame.f_code.co_filename.startswith(TRACED) else None

    threading.settrace(on_call)
    sys.settrace(on_call)
    try:
        act()
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    return count


def in_child(act: Callable[[], object]) -> int:
    """The exit status of a forked child that did `act`; the negative number of the signal that ended it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(STUCK_AFTER_S)
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def said_by_child(act: Callable[[], None]) -> str:
    """What a forked child complained of in its last line; empty where it did not."""
    reader, writer = os.pipe()

    def say() -> None:
        try:
            act()
        except BaseException as error:
            os.write(writer, f"{type(error).__name__}: {error}"[:2000].encode())

    ended = in_child(say)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as said:
        complaint = said.read()
    return complaint or ("" if ended == 0 else f"looking ended with {ended}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(sweep(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
