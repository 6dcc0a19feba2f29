"""POST /answer as server-sent events: what comes, in which order, and how it ends whatever ends it."""

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from openbook.api import server as api_server
from openbook.api import streaming
from openbook.api.streaming import asks_for_events
from openbook.settings import Settings
from tests.fixtures.clock import Clock
from tests.fixtures.stepping import Stepping
from tests.openbook.api.conftest import PERU, SlowSearch, connect, ended_with, get
from tests.openbook.api.test_server import counted
from tests.waiting import PATIENCE_S, until

QUESTION: dict[str, Any] = {"question": PERU, "n_docs": 4, "max_new_tokens": 6}
STREAM = QUESTION | {"stream": True}

Event = tuple[str, dict[str, Any]]


def events_of(text: str) -> list[Event]:
    """The events, without the comments."""
    found = []
    for block in text.removesuffix("\n\n").split("\n\n"):
        if not block.startswith(":"):
            name, data = block.split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def names(events: list[Event]) -> list[str]:
    return [name for name, _ in events]


@contextmanager
def streaming_from(server: str, body: dict[str, Any]) -> Iterator[Iterator[Event]]:
    """The events as they come."""
    with httpx.Client(timeout=PATIENCE_S, verify=False) as client:  # noqa: SIM117
        with client.stream("POST", f"{server}/answer", json=body) as response:
            lines = (line for line in response.iter_lines() if line and not line.startswith(":"))
            pairs = zip(lines, lines, strict=True)
            yield ((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs)


@pytest.mark.parametrize(
    "asked",
    [{}, {"num_beams": 4, "num_answers": 2}, {"model": "sequence", "n_docs": 3}, {"abstain": {"max_no_answer": 0}}],
    ids=["greedy", "beams", "sequence", "withheld"],
)
def test_a_stream_holds_passages_tokens_and_the_whole_answer(reader: TestClient, asked: dict[str, Any]) -> None:
    response = reader.post("/answer", json=STREAM | asked)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-request-id"]
    (first, passages), *tokens, (last, answer) = events_of(response.text)
    assert (first, last) == ("passages", "answer")
    assert {name for name, _ in tokens} <= {"token"}
    told = asked.get("model") != "sequence" and "abstain" not in asked
    assert [token for _, token in tokens] == (answer["tokens"] if told else [])
    assert len(answer["tokens"]) > 1
    whole = reader.post("/answer", json=QUESTION | asked).json()
    found = reader.post("/retrieve", json={name: (QUESTION | asked)[name] for name in ("question", "n_docs")}).json()
    for one in (answer, whole, passages, found):
        assert one.pop("seconds")["queue"] >= 0
    assert passages == found
    assert answer.keys() == whole.keys()
    for name in answer.keys() - {"tokens", "passages"}:
        assert answer[name] == whole[name]
    for one, other in zip(answer["tokens"], whole["tokens"], strict=True):
        assert one["text"] == other["text"]
        assert [one["log_prob"], *one["posterior"]] == pytest.approx([other["log_prob"], *other["posterior"]], abs=1e-6)


@pytest.mark.parametrize(
    ("accept", "streamed"),
    [
        ("text/event-stream", True),
        ("Text/Event-Stream;q=0.9, */*", True),
        ("application/json, text/event-stream", False),
        ("application/json", False),
        ("*/*", False),
        ("", False),
    ],
)
def test_a_client_may_ask_for_events_by_its_accept_header(reader: TestClient, accept: str, streamed: bool) -> None:
    assert asks_for_events(accept) == streamed
    response = reader.post("/answer", json=QUESTION, headers={"accept": accept})
    assert response.headers["content-type"].startswith("text/event-stream" if streamed else "application/json")
    # what the body says counts more
    for stream, kind in ((True, "text/event-stream"), (False, "application/json")):
        response = reader.post("/answer", json=QUESTION | {"stream": stream}, headers={"accept": accept})
        assert response.headers["content-type"].startswith(kind)


@pytest.mark.parametrize(
    ("wrong", "status", "code"),
    [
        ({"n_docs": 13}, 422, "invalid_request"),
        ({"index": "tiny-1066"}, 404, "unknown_index"),
        ({"retriever": "bm25"}, 409, "retriever_unavailable"),
        ({"stream": "yes"}, 422, "invalid_request"),
        ({"timeout_s": 0.000001}, 504, "deadline_exceeded"),
    ],
)
def test_an_error_before_the_first_event_has_its_own_status(
    reader: TestClient, wrong: dict[str, Any], status: int, code: str
) -> None:
    assert ended_with(reader.post("/answer", json=STREAM | wrong)) == (status, code)


def test_each_event_comes_when_it_is_known(server: str, stepping: Stepping) -> None:
    with streaming_from(server, STREAM) as events:
        assert next(events)[0] == "passages"
        for _ in range(3):
            stepping.go_on(1)
            assert next(events)[0] == "token"
        stepping.go_on()
        assert [name for name, _ in events][-1] == "answer"


def test_a_deadline_ends_a_stream_with_a_problem(server: str, stepping: Stepping, clock: Clock) -> None:
    with streaming_from(server, STREAM | {"timeout_s": 100.0}) as events:
        assert next(events)[0] == "passages"
        clock.forward(100)
        ((name, problem),) = events
    assert (name, problem["code"], problem["status"]) == ("error", "deadline_exceeded", 504)
    assert problem["detail"].startswith("No answer within 100.0 s.")
    assert problem["request_id"]
    assert counted(server, 'openbook_requests_total{outcome="deadline_exceeded",route="/answer"}') == 1
    stepping.go_on(1)
    until(lambda: counted(server, "openbook_questions_running") == 0)


def test_a_client_that_hangs_up_frees_its_place_and_its_lease_within_a_step(server: str, stepping: Stepping) -> None:
    with streaming_from(server, STREAM) as events:
        assert next(events)[0] == "passages"
        stepping.go_on(1)
        assert next(events)[0] == "token"
        assert counted(server, "openbook_questions_running") == 1
    until(lambda: counted(server, 'openbook_requests_total{outcome="cancelled",route="/answer"}') == 1)
    stepping.go_on(1)
    until(lambda: counted(server, "openbook_questions_running") == 0)
    assert [one["leases"] for one in get(f"{server}/index").json()["resident"]] == [0, 0]


def test_silence_is_broken_by_comments(server: str, slow_search: SlowSearch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "HEARTBEAT_S", 0.05)
    client = slow_search.ask(server, STREAM, connection="close")
    received = b""
    while received.count(b": ping\n\n") < 3:
        received += client.recv(65_536)
    assert b"event:" not in received
    slow_search.go_on.set()
    while piece := client.recv(65_536):
        received += piece
    assert received.index(b": ping") < received.index(b"event: passages") < received.index(b"event: answer")


def test_a_service_that_ends_tells_its_streams(app: FastAPI, settings: Settings, stepping: Stepping) -> None:
    with api_server.serving(app, settings) as port, streaming_from(f"http://127.0.0.1:{port}", STREAM) as events:
        assert next(events)[0] == "passages"
        app.state.services.pool.stop()
        stepping.go_on(1)
        # that step may still be told
        ended = [(name, problem["code"]) for name, problem in events if name != "token"]
    assert ended == [("error", "not_ready")]


def test_the_log_says_which_version_answered_a_stream(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="openbook.access"):
        client.post("/answer", json=STREAM)
    facts = next(record for record in caplog.records if record.name == "openbook.access").facts  # type: ignore[attr-defined]
    assert (facts["index"], facts["outcome"], facts["status"]) == ("tiny-2016", "ok", 200)
    assert facts["generate_s"] > 0


class Lost:
    """Notices the end of a connection to the service, whose sockets hold little in their buffers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended = threading.Event()
        made, lost = api_server.BoundedProtocol.connection_made, api_server.BoundedProtocol.connection_lost

        def connection_made(protocol: api_server.BoundedProtocol, transport: asyncio.Transport) -> None:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            made(protocol, transport)

        def connection_lost(protocol: api_server.BoundedProtocol, error: Exception | None) -> None:
            lost(protocol, error)
            self.ended.set()

        monkeypatch.setattr(api_server.BoundedProtocol, "connection_made", connection_made)
        monkeypatch.setattr(api_server.BoundedProtocol, "connection_lost", connection_lost)


@contextmanager
def who_never_reads(port: int, path: str, *headers: str) -> Iterator[None]:
    """A client that has asked for `path`, whose socket takes little of the answer."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", port))
        client.sendall("\r\n".join((f"GET {path} HTTP/1.1", "host: localhost", *headers, "", "")).encode())
        yield


def test_a_client_that_stops_reading_is_cut_off(
    app: FastAPI, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_server.BoundedProtocol, "unread_timeout_s", 0.3)
    lost = Lost(monkeypatch)

    @app.get("/large")
    async def large() -> str:
        return "x" * (64 << 20)

    with api_server.serving(app, settings) as port, who_never_reads(port, "/large"):
        assert lost.ended.wait(PATIENCE_S)


@pytest.mark.parametrize("header", ["connection: close", "connection: keep-alive"])
def test_a_client_that_leaves_the_last_bytes_unread_is_cut_off(
    app: FastAPI, settings: Settings, monkeypatch: pytest.MonkeyPatch, header: str
) -> None:
    for limit in ("unread_timeout_s", "head_timeout_s"):
        monkeypatch.setattr(api_server.BoundedProtocol, limit, 0.3)
    lost = Lost(monkeypatch)

    @app.get("/rest")
    async def rest() -> str:
        # less than what makes asyncio pause
        return "x" * 60_000

    with api_server.serving(app, settings) as port, who_never_reads(port, "/rest", header):
        assert lost.ended.wait(PATIENCE_S)


def test_a_client_that_reads_slowly_gets_all(app: FastAPI, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    Lost(monkeypatch)

    @app.get("/rest")
    async def rest() -> str:
        return "x" * 60_000

    with api_server.serving(app, settings) as port, connect(f"http://127.0.0.1:{port}") as client:
        client.sendall(b"GET /rest HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        read = b""
        while part := client.recv(5000):
            time.sleep(0.01)
            read += part
    assert read.count(b"x" * 60_000) == 1
