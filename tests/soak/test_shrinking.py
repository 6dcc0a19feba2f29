"""A file of the live version that shrinks: an error while the service lives, and a restart that refuses it."""

import os
from pathlib import Path

import pytest

from openbook.storage.index_store import IndexStore
from tests.soak.clients import COLOURS, QUESTIONS, body_of, publish_coloured
from tests.soak.servers import Nursery
from tests.waiting import until


@pytest.mark.slow
def test_a_live_version_that_shrinks_is_an_error_and_is_not_served_again(
    tmp_path: Path, tiny_checkpoint: Path, nursery: Nursery
) -> None:
    store = IndexStore(tmp_path / "indexes")
    for version in COLOURS:
        publish_coloured(store, version)
    store.set_current("book-red")
    settings = {"indexes": store.folder, "checkpoint": str(tiny_checkpoint), "residents": 1}
    server = nursery.begin(tmp_path / "log", **settings)
    server.wait_until_ready()

    os.truncate(store.file("book-red", "index.faiss"), 4096)
    reply = server.call("POST", "/answer", body_of(QUESTIONS[0]))
    assert (reply.status, reply.body["code"]) == (500, "index_corrupt")
    ready = server.call("GET", "/readyz")
    assert (ready.status, ready.body["code"]) == (503, "not_ready")
    assert str(tmp_path) not in str(ready.body)

    # as after SIGBUS: a supervisor begins the same service again
    server.kill()
    again = nursery.begin(tmp_path / "log", **settings)
    until(again.gone, what="the end of a service that refuses its version")
    assert "index.faiss" in (tmp_path / "log").read_text()
    another = nursery.begin(tmp_path / "log", **settings, index="book-blue")
    another.wait_until_ready()
    answer = another.call("POST", "/answer", body_of(QUESTIONS[0]))
    assert answer.body["index"]["version"] == "book-blue"
    another.kill()
