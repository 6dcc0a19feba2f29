"""What tests.soak.killing kills beside what it does to a folder: pulls, pushes and a swap to what lies in a store."""

import shutil
from collections.abc import Callable
from pathlib import Path

from openbook.plugins.objects import copying
from openbook.plugins.objects.copying import pull, push, verify_remote
from openbook.plugins.objects.fsspec_store import FsspecStore
from openbook.plugins.objects.remote_store import RemoteStore
from openbook.storage.index_store import IndexStore
from tests.fixtures.killing import in_child
from tests.fixtures.replicas import Replica
from tests.fixtures.stores import ignore, remote
from tests.soak.books import check_book, publish_book

FIRST, SECOND = "first", "second"


def quiet(share: float) -> None:
    """Reports nothing."""


def objects_in(place: Path) -> FsspecStore:
    return FsspecStore(f"file://{place}/store")


def copies_in(place: Path) -> IndexStore:
    return IndexStore(place / "copies")


def machine(place: Path) -> RemoteStore:
    return remote(f"file://{place}/store", place / "cache")


def pull_book(place: Path) -> None:
    pull(objects_in(place), copies_in(place), "book", quiet, ignore)


def push_book(place: Path) -> None:
    push(objects_in(place), IndexStore(place / SECOND), "book", quiet, replace=True)


def push_new(place: Path) -> None:
    push(objects_in(place), IndexStore(place / FIRST), "other", quiet)


def swap(place: Path) -> None:
    """A service whose machine has the first and not the second, as far as swapping goes."""
    store = machine(place)
    replica = Replica.start(store.folder, "here", store=store)
    try:
        if not replica.swap_index.begin("book").result().durable:
            raise AssertionError("the swap was not durable")
    finally:
        replica.close()


def look_at_copy(place: Path) -> None:
    """The copy is the one of before, or that of the store; the next pull makes it that of the store."""
    copies = copies_in(place)
    check_book(copies, "book", [SECOND, FIRST])
    pull_book(place)
    check_book(copies, "book", [FIRST])
    nothing_left(copies.folder)


def look_at_new_copy(place: Path) -> None:
    """The copy is there as a whole or not at all."""
    copies = copies_in(place)
    if copies.versions():
        check_book(copies, "book", [FIRST])
    pull_book(place)
    check_book(copies, "book", [FIRST])
    nothing_left(copies.folder)


def look_at_store(place: Path) -> None:
    """What the store shows is whole; the next push ends with the second book."""
    objects = objects_in(place)
    for version in objects.versions():
        verify_remote(objects, version)
    push_book(place)
    push_new(place)
    pull_book(place)
    check_book(copies_in(place), "book", [SECOND])
    if objects.versions() != ("book", "here", "other"):
        raise AssertionError(f"the store has {objects.versions()}")


def look_at_service(place: Path) -> None:
    """The next service starts on what CURRENT names, and swaps."""
    store = machine(place)
    live = store.default_version()
    if live not in ("here", "book"):
        raise AssertionError(f"CURRENT names {live}")
    replica = Replica.start(store.folder, store=store)
    replica.swap_index.begin("book").result()
    replica.close()
    check_book(store.copies, "book", [FIRST])
    if (store.current(), store.copies.current()) != ("book", "book"):
        raise AssertionError(f"CURRENT names {store.current()}")
    nothing_left(store.folder)


def nothing_left(folder: Path) -> None:
    left = [path.name for path in folder.iterdir() if path.name.startswith((".pulling-", ".building-"))]
    if left:
        raise AssertionError(f"left over: {left}")


# What each does, which template it finds, and how the next process looks at what is there.
OPERATIONS: dict[str, tuple[Callable[[Path], None], str, Callable[[Path], None]]] = {
    "pull": (pull_book, "empty", look_at_new_copy),
    "pull over a copy": (pull_book, "copied", look_at_copy),
    "push": (push_new, "copied", look_at_store),
    "push again": (push_book, "copied", look_at_store),
    "swap to a version of the store": (swap, "copied", look_at_service),
}


def prepare(folder: Path) -> None:
    copying.RANGE_BYTES, copying.LOOK_S = 64, 0.002
    in_child(lambda: write_templates(folder))


def write_templates(folder: Path) -> None:
    for name in (FIRST, SECOND):
        store = IndexStore(folder / "empty" / name)
        publish_book(store, "book", name)
    for version in ("here", "other"):
        publish_book(IndexStore(folder / "empty" / FIRST), version)
    place = folder / "empty"
    for version in ("book", "here"):
        push(objects_in(place), IndexStore(place / FIRST), version, quiet)
    objects_in(place).write_current("here", None)
    shutil.copytree(place, folder / "copied")
    publish_book(copies_in(folder / "copied"), "book", SECOND)
