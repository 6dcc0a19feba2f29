"""Two replicas on one folder, under load: a swap on one reaches the other."""

import statistics

import pytest

from openbook.storage.index_store import IndexStore
from tests.fixtures.summary import Summary
from tests.soak.clients import COLOURS, Clients
from tests.soak.conftest import Serve
from tests.soak.servers import Server
from tests.waiting import until

CLIENTS = 8
VERSIONS = tuple(COLOURS)
# How long the other replica may take on a machine that is busy with other things; half a second is the setting.


@pytest.fixture
def replicas(serve: Serve, store: IndexStore) -> tuple[Server, Server]:
    """Both serve book-red."""
    store.set_current("book-red")
    begun = serve(), serve()
    for server in begun:
        server.wait_until_ready()
    return begun


def other(version: str) -> str:
    return VERSIONS[1 - VERSIONS.index(version)]


def follows(server: Server, version: str) -> float:
    """Seconds until it serves `version`."""
    return until(lambda: server.live() == version, what=f"{version} to be live")


def failures(clients: Clients) -> list[str]:
    return [one.failure for one in clients.asked() if one.failure is not None]


@pytest.mark.parametrize("swaps", [3, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_swap_on_one_replica_reaches_the_other_under_load(
    replicas: tuple[Server, Server], swaps: int, summary: Summary
) -> None:
    """Each replica swaps in turn."""
    live = "book-red"
    seconds = []
    with Clients([server.port for server in replicas], CLIENTS, {}) as clients:
        until(lambda: len(clients.asked()) >= CLIENTS, what="the first questions")
        for number in range(swaps):
            told, follower = replicas[number % 2], replicas[1 - number % 2]
            live = other(live)
            reply = told.swap(live)
            assert (reply.status, reply.body.get("durable")) == (200, True), reply.body
            seconds.append(follows(follower, live))
            # it must not be told back
            assert told.live() == live
    asked = clients.asked()
    assert failures(clients) == []
    assert {one.version for one in asked} == set(COLOURS)
    summary(
        f"two replicas, {CLIENTS} clients: {swaps} swaps, the other followed after {statistics.median(seconds):.2f} s "
        f"in the median and {max(seconds):.2f} s at most; {len(asked)} questions, 0 failed or mixed"
    )
