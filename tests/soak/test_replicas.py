"""Two replicas on one folder, under load: a swap on one reaches the other, whatever happened to it meanwhile."""

import signal
import statistics

import pytest

from openbook.storage.index_store import IndexStore
from tests.fixtures.summary import Summary
from tests.soak.clients import COLOURS, QUESTIONS, Clients, body_of, mixture
from tests.soak.conftest import Serve
from tests.soak.servers import Server, until

CLIENTS = 8
VERSIONS = tuple(COLOURS)
# How long the other replica may take on a machine that is busy with other things; half a second is the setting.
FOLLOWED_WITHIN_S = 30.0


@pytest.fixture(scope="module")
def begun(serve: Serve) -> tuple[Server, Server]:
    return serve(), serve()


@pytest.fixture
def replicas(begun: tuple[Server, Server], store: IndexStore) -> tuple[Server, Server]:
    """Both serve book-red, whatever a test before has done to them."""
    for server in begun:
        if server.gone():
            server.restart()
        server.send(signal.SIGCONT)
        server.wait_until_ready()
    store.set_current("book-red")
    for server in begun:
        follows(server, "book-red")
    return begun


def other(version: str) -> str:
    return VERSIONS[1 - VERSIONS.index(version)]


def follows(server: Server, version: str) -> float:
    """Seconds until it serves `version`."""
    return until(lambda: server.live() == version, what=f"{version} to be live", limit_s=FOLLOWED_WITHIN_S)


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


def test_a_replica_that_was_stopped_during_a_swap_comes_back_on_it(
    replicas: tuple[Server, Server], store: IndexStore, summary: Summary
) -> None:
    told, stopped = replicas
    with Clients([server.port for server in replicas], 4, {}) as clients:
        until(lambda: len(clients.asked()) >= 4, what="the first questions")
        stopped.send(signal.SIGSTOP)
        assert told.swap("book-blue").status == 200
        stopped.send(signal.SIGCONT)
        after_stop_s = follows(stopped, "book-blue")
    assert failures(clients) == []
    stopped.kill()
    with Clients([told.port], 4, {}) as clients:
        assert told.swap("book-red").status == 200
        stopped.restart()
    assert failures(clients) == []
    assert stopped.live() == "book-red"
    assert store.current() == "book-red"
    summary(f"a replica stopped during a swap served the new version {after_stop_s:.2f} s after it went on")


def test_a_replica_that_is_killed_during_a_swap_comes_back_on_one_of_the_two(
    replicas: tuple[Server, Server], store: IndexStore
) -> None:
    told, surviving = replicas
    assert told.call("POST", "/index/swap", {"version": "book-blue", "wait": False}).status == 202
    told.kill()
    current = store.current()
    assert current in VERSIONS
    told.restart()
    assert told.live() == current
    follows(surviving, str(current))
    for server in replicas:
        answer = server.call("POST", "/answer", body_of(QUESTIONS[0])).body
        assert mixture(answer, None) is None


def following(server: Server) -> dict[str, object]:
    reply = server.call("GET", "/readyz")
    assert reply.status == 200
    found: dict[str, object] = reply.body["following"]
    return found


def metric(server: Server, name: str) -> float:
    lines = server.call("GET", "/metrics").body["text"].splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).rpartition(" ")[2])


def test_a_current_that_names_a_broken_version_leaves_both_replicas_serving(
    replicas: tuple[Server, Server], store: IndexStore
) -> None:
    file = store.folder / "book-blue" / "passages.arrow"
    sound = file.read_bytes()
    file.unlink()
    file.write_bytes(b"not what it was")
    with Clients([server.port for server in replicas], 4, {}) as clients:
        until(lambda: len(clients.asked()) >= 4, what="the first questions")
        store.set_current("book-blue")
        for server in replicas:
            until(lambda server=server: following(server)["ok"] is False, what="a problem")  # type: ignore[misc]
            said = following(server)
            assert (said["wanted"], said["code"]) == ("book-blue", "index_corrupt")
            assert metric(server, "openbook_following_ok") == 0
            assert metric(server, 'openbook_current_follow_failures_total{code="index_corrupt"}') >= 1
            assert server.live() == "book-red"
            assert "CURRENT names book-blue, which cannot be served" in server.log.read_text()
        # what a question is answered from has not changed
        n_asked = len(clients.asked())
        until(lambda: len(clients.asked()) > n_asked + 8, what="further questions")
        store.set_current("book-red")
        for server in replicas:
            until(lambda server=server: following(server)["ok"] is True, what="no problem")  # type: ignore[misc]
            assert metric(server, "openbook_following_ok") == 1
    assert failures(clients) == []
    assert {one.version for one in clients.asked()} == {"book-red"}
    file.write_bytes(sound)
