"""A process that forks, does one thing in the child, and kills the child before the n-th line of storage or swap code.

`python -m tests.soak.killing KILLS FOLDER OPERATION...` sweeps n over so many lines of each operation, or over all of
them for 0; without an OPERATION, of all.
After each kill it looks at the folder as the next process would find it. It writes one JSON object: for each operation
how many lines it has, how many children were killed, what was found wrong, and the seconds. The product has no fault
points: lines are counted by `sys.settrace`.

Nothing here starts a thread before a fork, and torch is not imported, so that a child costs milliseconds.
"""

import json
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import openbook
from openbook.application.guarding import Guarding, GuardSource
from openbook.application.swap_progress import SwapPolicy
from openbook.errors import GuardFailed
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import MANIFEST
from openbook.storage.placing import delete_version, prune
from openbook.storage.snapshot import IndexSnapshot
from tests.soak.books import check_book, publish_book, swap_to
from tests.waiting import PATIENCE_S

PACKAGE = Path(openbook.__file__).parent
TRACED = tuple(str(PACKAGE / room) for room in ("storage", "indexing", "application"))


def swap(policy: SwapPolicy) -> Callable[[Path], None]:
    return lambda folder: swap_to(folder, "old", "other", policy=policy)


class Demand:
    """What the first passage must be called; it is found by the version's own vector."""

    question = "Which is the first passage?"

    def __init__(self, title: str) -> None:
        self._title = title

    def breaks(self, answer: Any) -> list[str]:
        return [] if answer.answer == self._title else [f"lacks {self._title!r}"]


def guarded_swap(title: str) -> Callable[[Path], None]:
    """A swap whose guard asks for `title` three times; one that it refuses has ended well, too."""

    def ask(_: str, snapshot: IndexSnapshot | None, seconds: float) -> Any:
        said = "nothing"
        if snapshot is not None:
            said = snapshot.passages([int(snapshot.search(snapshot.vectors([0]), 1)[0, 0])])[0].title
        return SimpleNamespace(answer=said, source=SimpleNamespace(seconds=SimpleNamespace(total=0.0, queue=0.0)))

    guarding = Guarding(GuardSource(lambda: [Demand(title)] * 3, share=1.0, within_s=PATIENCE_S), ask)

    def act(folder: Path) -> None:
        with suppress(GuardFailed):
            swap_to(folder, "old", "other", policy="availability", guarding=guarding)

    return act


KEPT: dict[str, tuple[str | None, ...]] = {"old": ("old",), "other": ("other",)}
# What each does, the contents that each version may have after it, and what CURRENT may name. "old" and "other" are
# there before, with CURRENT on "old"; a version that need not be there may have the content None.
OPERATIONS: dict[str, tuple[Callable[[Path], object], dict[str, tuple[str | None, ...]], tuple[str, ...]]] = {
    "publish": (lambda folder: publish_book(IndexStore(folder), "new"), KEPT | {"new": (None, "new")}, ("old",)),
    "publish again": (
        lambda folder: publish_book(IndexStore(folder), "old", "second", replace=True),
        KEPT | {"old": ("old", "second")},
        ("old",),
    ),
    "delete": (
        lambda folder: delete_version(IndexStore(folder), "other"),
        KEPT | {"other": (None, "other")},
        ("old",),
    ),
    "prune": (lambda folder: prune(IndexStore(folder), older_than_s=0), KEPT, ("old",)),
    "set_current": (lambda folder: IndexStore(folder).set_current("other"), KEPT, ("old", "other")),
    "swap": (swap("availability"), KEPT, ("old", "other")),
    "swap after a drain": (swap("resource"), KEPT, ("old", "other")),
    "guarded swap": (guarded_swap("title 0"), KEPT, ("old", "other")),
    "refused swap": (guarded_swap("no title"), KEPT, ("old",)),
}


def sweep(
    act: Callable[[Path], object], template: Path, look: Callable[[Path], None], wanted_kills: int
) -> dict[str, Any]:
    """Kill before the first line, before the last, and evenly between; after each, look."""
    started = time.monotonic()
    place = template.with_name("place")
    lines = count_lines(act, Path(shutil.copytree(template, place)))
    kills, failures = 0, []
    stride = max(1, lines // wanted_kills) if wanted_kills else 1
    for n in sorted({*range(1, lines + 1, stride), lines}):
        shutil.rmtree(place)
        shutil.copytree(template, place)
        ended = in_child(lambda n=n: traced(lambda: act(place), n))  # type: ignore[misc]
        kills += ended == -signal.SIGKILL
        if ended not in (0, -signal.SIGKILL):
            failures.append(f"line {n}: the child ended with {ended}")
        _, complaint = said_by_child(lambda: look(place))
        if complaint:
            failures.append(f"line {n}: {complaint}")
    shutil.rmtree(place)
    return {"lines": lines, "killed": kills, "failures": failures, "seconds": time.monotonic() - started}


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
    """As the next process: list, verify, open, answer; swap; publish again, after which nothing is left over."""
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


def count_lines(act: Callable[[Path], object], place: Path) -> int:
    ended, lines = said_by_child(lambda: str(traced(lambda: act(place))))
    if ended != 0:
        raise RuntimeError(f"the operation itself ended with {ended}: {lines}")
    return int(lines)


def traced(act: Callable[[], object], kill_at: int = sys.maxsize) -> int:
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
            signal.alarm(int(PATIENCE_S))
            act()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def said_by_child(act: Callable[[], str | None]) -> tuple[int, str]:
    """The exit status of a forked child, and what `act` returned there or complained of."""
    reader, writer = os.pipe()

    def say() -> None:
        status = 1
        try:
            said = act() or ""
            status = 0
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"[:2000]
        os.write(writer, said.encode())
        os._exit(status)

    ended = in_child(say)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as said:
        return ended, said.read() or ("" if ended == 0 else f"it ended with {ended}")


def main(wanted_kills: int, folder: Path, *operations: str) -> None:
    template = folder / "template"
    in_child(lambda: prepare(template))
    swept = {
        operation: sweep(act, template, partial(look, contents=contents, current=current), wanted_kills)
        for operation, (act, contents, current) in OPERATIONS.items()
        if not operations or operation in operations
    }
    sys.stdout.write(json.dumps(swept))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
