"""Real servers over two versions whose every passage says which one it is of."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from openbook.storage.index_store import IndexStore
from tests.soak.clients import COLOURS, publish_coloured
from tests.soak.servers import Nursery, Server

Serve = Callable[..., Server]


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> IndexStore:
    """book-red, which is current, and book-blue."""
    store = IndexStore(tmp_path_factory.mktemp("soak") / "indexes")
    for version in COLOURS:
        publish_coloured(store, version)
    store.set_current("book-red")
    return store


@pytest.fixture(scope="module")
def serve(
    store: IndexStore, tiny_checkpoint: Path, nursery: Nursery, request: pytest.FixtureRequest
) -> Iterator[Serve]:
    """Begin a server over `store`, which is not ready yet and ends with the module's tests. A test may name another
    checkpoint than the plain one."""
    named = getattr(request, "param", None)
    checkpoint = tiny_checkpoint if named is None else request.getfixturevalue(named)
    begun: list[Server] = []
    numbers = count()

    def begin(**settings: object) -> Server:
        log = store.folder.parent / f"log-{next(numbers)}"
        begun.append(nursery.begin(log, indexes=store.folder, checkpoint=str(checkpoint), **settings))
        return begun[-1]

    yield begin
    for server in begun:
        server.kill()
