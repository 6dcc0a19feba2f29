"""What only a socket can show: clients that hang up, a full queue, deadlines, the beginning and the end."""

import json
import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from openbook.api import composition
from openbook.api import server as api_server
from openbook.api.app import create_app
from openbook.api.logs import FACTS
from openbook.api.server import serve
from openbook.application.live_index import LiveIndex
from openbook.errors import CheckpointInvalid, IndexIncompatible, NoIndexes, OpenbookError, UnknownIndex
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.clock import Clock
from tests.fixtures.indexes import publish_tiny
from tests.openbook.api.conftest import (
    ADMIN,
    Serve,
    SlowSearch,
    connect,
    ended_with,
    get,
    head,
    post,
    received,
    serving,
)
from tests.waiting import until

QUESTION = {"question": "who is the president of peru ?"}


def counted(server: str, name: str) -> float:
    lines = get(f"{server}/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def live_of(app: FastAPI) -> LiveIndex:
    live: LiveIndex = app.state.services.live
    return live


def test_a_client_that_hangs_up_holds_lease_and_slot_until_its_search_ends(
    serve: Serve, slow_search: SlowSearch
) -> None:
    server = serve(residents=1)
    with slow_search:
        client = slow_search.ask(server, QUESTION)
        slow_search.wait(1)
        client.close()
        until(lambda: counted(server, 'openbook_requests_total{outcome="cancelled",route="/answer"}') == 1)
        response = post(f"{server}/index/swap", json={"version": "tiny-2018"}, headers=ADMIN)
        assert response.json()["generation"] == 1
        resident = get(f"{server}/index").json()["resident"]
        assert [(one["version"], one["live"], one["retiring"], one["leases"]) for one in resident] == [
            ("tiny-2016", False, True, 1),
            ("tiny-2018", True, False, 0),
        ]
        assert counted(server, "openbook_questions_running") == 1
        slow_search.go_on.set()
        until(lambda: counted(server, "openbook_questions_running") == 0)
        assert [one["version"] for one in get(f"{server}/index").json()["resident"]] == ["tiny-2018"]
        # nothing was generated for a client that had gone
        assert counted(server, 'openbook_stage_seconds_count{stage="generate"}') == 0


def test_a_full_queue_refuses_at_once_while_the_service_stays_quick(serve: Serve, slow_search: SlowSearch) -> None:
    server = serve(workers=1, max_queue=1)
    with slow_search:
        admitted = [slow_search.ask(server, QUESTION)]
        slow_search.wait(1)
        # asked before the first was begun, the second would be computed with it and never wait
        admitted.append(slow_search.ask(server, QUESTION))
        until(lambda: counted(server, "openbook_queue_depth") == 1)
        refused = post(f"{server}/answer", json=QUESTION)
        assert ended_with(refused) == (503, "overloaded")
        assert refused.json()["detail"].startswith("All 2 places are taken. Try again in ")
        assert int(refused.headers["retry-after"]) >= 1
        # busy is not broken
        assert get(f"{server}/readyz").status_code == 200
        assert get(f"{server}/healthz").status_code == 200
        slow_search.go_on.set()
        for client in admitted:
            assert client.recv(12) == b"HTTP/1.1 200"
            client.close()
        assert post(f"{server}/answer", json=QUESTION).status_code == 200


def test_a_deadline_is_kept_and_the_slot_is_free_again_soon(
    serve: Serve, slow_search: SlowSearch, clock: Clock
) -> None:
    server = serve(workers=1, max_queue=0, timeout_s=100.0)
    with slow_search, ThreadPoolExecutor(1) as client:
        asked = client.submit(post, f"{server}/answer", json=QUESTION)
        slow_search.wait(1)
        clock.forward(100)
        late = asked.result()
        assert ended_with(late) == (504, "deadline_exceeded")
        assert late.json()["detail"].startswith("No answer within 100.0 s.")
        assert post(f"{server}/answer", json=QUESTION).status_code == 503
        slow_search.go_on.set()
        until(lambda: counted(server, "openbook_questions_running") == 0)
        # a question that names its own time
        assert post(f"{server}/answer", json={**QUESTION, "timeout_s": 60}).status_code == 200


def test_the_end_waits_for_questions_and_closes_the_index(
    settings: Settings, engine: RagEngine, slow_search: SlowSearch
) -> None:
    app = create_app(settings, engine=engine)
    with serving(app, settings) as server:
        client = slow_search.ask(server, QUESTION)
        slow_search.wait(1)
        with live_of(app).lease() as lease:
            snapshot = lease.snapshot
        threading.Timer(0.2, slow_search.go_on.set).start()
    assert client.recv(12) == b"HTTP/1.1 200"
    client.close()
    assert live_of(app).now() is None
    assert live_of(app).residents() == ()
    with pytest.raises(OpenbookError):
        snapshot.vectors([0])


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"indexes": Path("nowhere")}, NoIndexes),
        ({"index": "wiki-1999"}, UnknownIndex),
        ({"index": "tiny-2018"}, IndexIncompatible),
        ({"checkpoint": "nowhere/at/all"}, CheckpointInvalid),
    ],
)
def test_a_service_that_cannot_start_says_why_in_one_line(
    settings: Settings,
    changed: dict[str, object],
    error: type[OpenbookError],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish_tiny(IndexStore(Path(settings.indexes)), "tiny-2018", encoder_fingerprint="another", replace=True)
    monkeypatch.setattr("openbook.api.server.configure_logging", lambda *_: None)
    with pytest.raises(error) as raised:
        serve(settings.model_copy(update=changed))
    assert f"{raised.value.code}: {raised.value}" in caplog.messages
    assert "Traceback" not in caplog.text


@pytest.fixture
def own_logging() -> Iterator[None]:
    """For a test that configures logging: what it changes is put back."""
    root, quiet = logging.getLogger(), logging.getLogger("uvicorn.access")
    before = root.level, root.handlers[:], quiet.disabled
    yield
    level, root.handlers[:], quiet.disabled = before
    root.setLevel(level)


def test_a_signal_ends_the_service_well_with_json_in_its_log(
    settings: Settings, capfd: pytest.CaptureFixture[str], own_logging: None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    again = threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: again.set())
    address = f"http://127.0.0.1:{port}"

    def client() -> None:
        try:
            until(lambda: is_ready(address))
            assert post(f"{address}/answer", json=QUESTION).status_code == 200
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=client)
    thread.start()
    try:
        assert serve(settings.model_copy(update={"port": port})) == 0
    finally:
        thread.join()
        signal.signal(signal.SIGTERM, before)
    # raised again, the signal would end a process with another status
    assert not again.is_set()
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if line.startswith("{")]
    requests = [line for line in lines if line["logger"] == "openbook.access" and line["route"] == "/answer"]
    assert [(line["status"], line["outcome"], line["index"]) for line in requests] == [(200, "ok", "tiny-2016")]


def is_ready(address: str) -> bool:
    try:
        return get(f"{address}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def test_what_outlasts_the_grace_is_told_to_come_back(
    settings: Settings,
    engine: RagEngine,
    slow_search: SlowSearch,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(composition, "SHUTDOWN_S", 0.5)
    monkeypatch.setattr(api_server, "LAST_STEP_S", 0.3)
    settings = settings.model_copy(update={"workers": 1, "residents": 1})
    app = create_app(settings, engine=engine)
    with serving(app, settings) as server:
        logging.getLogger("openbook.access").addHandler(caplog.handler)
        clients = {"running": slow_search.ask(server, QUESTION)}
        slow_search.wait(1)
        clients["waiting"] = slow_search.ask(server, QUESTION)
        until(lambda: app.state.services.pool.waiting() == 1)
        swap = {"version": "tiny-2018", "policy": "resource"}
        clients["swap"] = slow_search.ask(server, swap, "/index/swap", **ADMIN)
        until(lambda: app.state.services.swap_index.progress().stage == "drain")
        clients["body"] = connect(server)
        clients["body"].sendall(head(content_length=99, expect="100-continue"))
        # the service waits for this body: one that it has not taken yet would be reset
        assert clients["body"].recv(100).startswith(b"HTTP/1.1 100 ")
        clients["body"].sendall(b"{")
    logging.getLogger("openbook.access").removeHandler(caplog.handler)
    for name, client in clients.items():
        with client:
            response = received(client).lower()
        assert response.startswith(b"http/1.1 503 "), name
        assert b"\r\nretry-after: 5\r\n" in response, name
        assert b"\r\ncontent-type: application/problem+json\r\n" in response, name
        assert b'"code":"not_ready"' in response, name
    facts = [vars(record)[FACTS] for record in caplog.records if record.name == "openbook.access"]
    ended = [(one["status"], one["outcome"]) for one in facts if one["method"] == "POST"]
    assert ended == [(503, "not_ready")] * len(clients)
    assert not [record for record in caplog.records if record.exc_info]


def test_a_service_that_ends_is_not_ready_and_admits_nothing(client: TestClient, app: FastAPI) -> None:
    assert client.portal is not None
    client.portal.call(app.state.end_work)
    calls = [client.get("/readyz"), client.post("/answer", json=QUESTION)]
    calls.append(client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN))
    for response in calls:
        assert (*ended_with(response), response.headers["retry-after"]) == (503, "not_ready", "5")
    # what is read keeps being served
    assert client.get("/index").json()["live"]["version"] == "tiny-2016"
