"""A process that does one thing in a child, and kills the child before the n-th line of storage or swap code.

`python -m tests.soak.killing KILLS FOLDER OPERATION...` sweeps n over so many lines of each operation, or over all of
them for 0. After each kill it looks at the place as the next process would find it. It writes one JSON object: for each
operation how many lines it has, how many children were killed, what was found wrong, and the seconds.
"""

import json
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from openbook.application.guarding import Guarding, GuardSource
from openbook.application.swap_progress import SwapPolicy
from openbook.errors import GuardFailed
from openbook.storage.history import SwapHistory
from openbook.storage.index_store import IndexStore
from openbook.storage.manifest import MANIFEST
from openbook.storage.placing import delete_version, prune
from openbook.storage.retention import Retention, retire
from openbook.storage.snapshot import IndexSnapshot
from tests.fixtures.killing import in_child, traced
from tests.soak import killing_copies
from tests.soak.books import check_book, publish_book, swap_to
from tests.waiting import PATIENCE_S

TRACED = ("storage", "indexing", "application")


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


def sweep(
    act: Callable[[Path], object], template: Path, look: Callable[[Path], None], wanted_kills: int
) -> dict[str, Any]:
    """Kill before the first line, before the last, and evenly between; after each, look."""
    started = time.monotonic()
    place = template.with_name("place")
    shutil.copytree(template, place)
    ended, lines = in_child(lambda: traced(lambda: act(place), *TRACED))
    if ended != 0:
        raise RuntimeError(f"the operation itself ended with {ended}: {lines}")
    kills, failures = 0, []
    stride = max(1, lines // wanted_kills) if wanted_kills else 1
    for n in sorted({*range(1, lines + 1, stride), lines}):
        shutil.rmtree(place)
        shutil.copytree(template, place)
        ended, _ = in_child(lambda n=n: traced(lambda: act(place), *TRACED, kill_at=n))  # type: ignore[misc]
        kills += ended == -signal.SIGKILL
        if ended not in (0, -signal.SIGKILL):
            failures.append(f"line {n}: the child ended with {ended}")
        looked, complaint = in_child(lambda: look(place))
        if looked != 0:
            failures.append(f"line {n}: it ended with {looked}: {complaint}")
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


KEPT: dict[str, tuple[str | None, ...]] = {"old": ("old",), "other": ("other",)}


def looking(*current: str, **contents: tuple[str | None, ...]) -> Callable[[Path], None]:
    """What CURRENT may name afterwards, and the contents that a version may have, None of one that may be gone."""
    return partial(look, contents=KEPT | contents, current=current)


# What each does, in which place, and how the next process looks at it. "old" and "other" are there before, with CURRENT
# on "old".
OPERATIONS: dict[str, tuple[Callable[[Path], object], str, Callable[[Path], None]]] = {
    "publish": (lambda folder: publish_book(IndexStore(folder), "new"), "versions", looking("old", new=(None, "new"))),
    "publish again": (
        lambda folder: publish_book(IndexStore(folder), "old", "second", replace=True),
        "versions",
        looking("old", old=("old", "second")),
    ),
    "delete": (
        lambda folder: delete_version(IndexStore(folder), "other"),
        "versions",
        looking("old", other=(None, "other")),
    ),
    "retire": (
        lambda folder: retire(IndexStore(folder), Retention(days=0), {}),
        "versions",
        looking("old", other=(None, "other")),
    ),
    "prune": (lambda folder: prune(IndexStore(folder), older_than_s=0), "versions", looking("old")),
    "set_current": (lambda folder: IndexStore(folder).set_current("other"), "versions", looking("old", "other")),
    "swap": (swap("availability"), "versions", looking("old", "other")),
    "swap after a drain": (swap("resource"), "versions", looking("old", "other")),
    "guarded swap": (guarded_swap("title 0"), "versions", looking("old", "other")),
    "refused swap": (guarded_swap("no title"), "versions", looking("old")),
    **killing_copies.OPERATIONS,
}


def main(wanted_kills: int, folder: Path, *operations: str) -> None:
    in_child(lambda: prepare(folder / "versions"))
    killing_copies.prepare(folder)
    swept = {}
    for operation in operations:
        act, template, look = OPERATIONS[operation]
        swept[operation] = sweep(act, folder / template, look, wanted_kills)
    sys.stdout.write(json.dumps(swept))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
