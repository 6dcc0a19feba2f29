"""Clients that guess, wait, trickle and frame: the service ends each within a limit, and no other client feels it."""

import logging
import re
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from openbook.api import access
from openbook.api.access import MOST_ATTEMPTS, WINDOW_S, FailedAttempts, place_of
from openbook.api.middleware import DEFAULTS, MAX_HEAD_BYTES
from openbook.api.page import HEADERS
from openbook.api.server import MAX_AHEAD_BYTES
from openbook.errors import TooManyAttempts
from tests.fixtures import clock as clocks
from tests.openbook.api.conftest import ADMIN, TOKEN, SlowSearch, connect, get, head, received
from tests.waiting import until

WRONG = {"authorization": "Bearer open says me"}
HISTORY = "/index/history"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def guess(client: TestClient, times: int) -> None:
    for _ in range(times):
        assert client.get(HISTORY, headers=WRONG).status_code == 401


def test_after_ten_wrong_tokens_an_address_is_refused_with_the_right_one_too(client: TestClient) -> None:
    guess(client, MOST_ATTEMPTS)
    for headers in (WRONG, ADMIN):
        response = client.get(HISTORY, headers=headers)
        assert (response.status_code, response.json()["code"]) == (429, "too_many_attempts")
        assert 0 < int(response.headers["retry-after"]) <= WINDOW_S
    # but for administration, nothing has changed
    assert client.post("/retrieve", json={"question": "who is the king ?"}).status_code == 200


def test_who_sends_no_token_has_not_guessed(client: TestClient) -> None:
    for _ in range(MOST_ATTEMPTS + 1):
        assert client.get(HISTORY).status_code == 401
    assert client.get(HISTORY, headers=ADMIN).status_code == 200


def test_every_administrative_call_counts_guesses_and_refuses_after_them(client: TestClient) -> None:
    calls = [("GET", HISTORY)] + [("POST", f"/index/{name}") for name in ("swap", "rollback", "load")]
    body = {"version": "tiny-2018"}
    for turn in range(MOST_ATTEMPTS):
        method, path = calls[turn % len(calls)]
        assert client.request(method, path, json=body, headers=WRONG).status_code == 401
    for method, path in calls:
        assert client.request(method, path, json=body, headers=ADMIN).status_code == 429


def test_a_token_is_compared_in_constant_time(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[object] = []
    # `append` returns None: the tokens differ
    monkeypatch.setattr(access, "compare_digest", lambda *both: compared.append(both))
    assert client.get(HISTORY, headers=ADMIN).status_code == 401
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


def test_the_log_says_once_where_guesses_came_from(
    app: FastAPI, client: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    app.state.attempts = FailedAttempts(clock=Clock())
    with caplog.at_level(logging.WARNING, logger=access.__name__):
        guess(client, MOST_ATTEMPTS)
        client.get(HISTORY, headers=WRONG)
    assert [record.getMessage() for record in caplog.records if record.name == access.__name__] == [
        "10 wrong tokens from 127.0.0.1: refused for 60 s"
    ]
    assert "open says me" not in caplog.text


def test_guesses_of_one_address_do_not_keep_another_out() -> None:
    failed = FailedAttempts(most=2, clock=Clock())
    for _ in range(2):
        failed.check("192.0.2.1")
        failed.fail("192.0.2.1")
    with pytest.raises(TooManyAttempts):
        failed.check("192.0.2.1")
    failed.check("192.0.2.2")


def test_guesses_are_forgotten_when_their_window_has_passed() -> None:
    clock = Clock()
    failed = FailedAttempts(most=1, window_s=60, clock=clock)
    failed.fail("192.0.2.1")
    clock.now += 59.5
    with pytest.raises(TooManyAttempts) as raised:
        failed.check("192.0.2.1")
    assert raised.value.data["retry_after_s"] == 1
    clock.now += 0.5
    failed.check("192.0.2.1")
    assert len(failed) == 0


def test_any_number_of_addresses_takes_little_memory() -> None:
    failed = FailedAttempts(most=1, max_places=8, clock=Clock())
    for number in range(1000):
        failed.fail(f"192.0.2.{number}")
    assert len(failed) == 8
    with pytest.raises(TooManyAttempts):
        failed.check("192.0.2.999")


def test_the_addresses_of_one_customer_are_counted_together() -> None:
    assert place_of("2001:db8:1:2::1") == place_of("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert place_of("2001:db8:1:3::1") != place_of("2001:db8:1:2::1")
    assert place_of("::ffff:192.0.2.1") == place_of("192.0.2.1") == "192.0.2.1"
    assert place_of("fe80::1%eth0") == "fe80::/64"
    assert place_of("a socket file") == place_of("") == "unknown"


@pytest.mark.parametrize(
    "path", ["/healthz", "/metrics", "/openapi.json", "/index", HISTORY, "/nowhere", "/answer", "/index/..%2f..%2fetc"]
)
def test_every_response_is_hardened(reader: TestClient, path: str) -> None:
    headers = reader.get(path).headers
    assert dict(headers) | DEFAULTS == dict(headers)


def test_a_bug_is_told_with_the_same_headers(client: TestClient, app: FastAPI) -> None:
    app.state.services = None
    response = client.get("/index")
    assert response.status_code == 500
    assert dict(response.headers) | DEFAULTS == dict(response.headers)


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_keeps_its_own_policy(reader: TestClient, path: str) -> None:
    headers = reader.get(path).headers
    assert dict(headers) | DEFAULTS | HEADERS == dict(headers)
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_a_head_that_comes_in_one_piece_is_bounded_too(reader: TestClient) -> None:
    for response in (
        reader.get("/healthz", headers={"x-padding": "x" * MAX_HEAD_BYTES}),
        reader.get("/healthz?" + "x" * MAX_HEAD_BYTES),
        reader.get("/" + "x" * MAX_HEAD_BYTES),
    ):
        assert (response.status_code, response.json()["code"]) == (431, "head_too_large")
        assert response.headers["connection"] == "close"
        assert len(response.content) < 1000


@pytest.mark.parametrize("origin", ["null", "http://elsewhere.example"])
def test_no_other_site_may_read_an_answer(reader: TestClient, origin: str) -> None:
    preflight = {"origin": origin, "access-control-request-method": "POST"}
    for response in (reader.options("/answer", headers=preflight), reader.get("/index", headers={"origin": origin})):
        assert not [name for name in response.headers if name.startswith("access-control-")]


@pytest.fixture
def hasty(hasty_after: Callable[..., str]) -> str:
    return hasty_after(0.3)


@pytest.mark.parametrize("sent", [b"", b"P", b"POST /answer HTTP/1.1\r\nhost: localhost\r\n"])
def test_a_head_that_never_ends_is_not_waited_for(hasty: str, sent: bytes) -> None:
    # where the machine is busy it may have closed before this begins
    with connect(hasty) as client, suppress(ConnectionError):
        client.sendall(sent)
        assert received(client) == b""
    assert get(f"{hasty}/healthz").status_code == 200


@pytest.mark.parametrize("answered", [False, True], ids=["the first", "after an answer"])
def test_a_head_that_trickles_is_not_waited_for_either(hasty_after: Callable[..., str], answered: bool) -> None:
    with connect(hasty_after(1.5 if answered else 0.3)) as client:
        if answered:
            client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 200"
        with pytest.raises(OSError, match=r"."):  # noqa: PT012
            # a head that could end in time would be answered
            for byte in b"POST /answer HTTP/1.1\r\nx: " + b"x" * 5_000:
                client.sendall(bytes([byte]))
                time.sleep(0.02)


@pytest.mark.parametrize("body", [b"", b'{"question": "who'])
@pytest.mark.parametrize("framing", [{"content_length": "99"}, {"transfer_encoding": "chunked"}])
def test_a_body_that_never_comes_is_refused_and_the_connection_closed(
    hasty_after: Callable[..., str], framing: dict[str, str], body: bytes
) -> None:
    chunk = b"%x\r\n%b\r\n" % (len(body), body) if body and "transfer_encoding" in framing else body
    with connect(hasty_after(60, body_s=0.3)) as client:
        client.sendall(head(**framing) + chunk)
        response = received(client)
    assert response.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"body_too_slow"' in response
    assert b"connection: close" in response.lower()


def test_a_question_that_takes_longer_than_a_head_may_is_answered(
    server: str, slow_search: SlowSearch, clock: clocks.Clock
) -> None:
    with slow_search, connect(server) as client:
        content = b'{"question": "who is the king ?", "timeout_s": 120}'
        client.sendall(head(content_length=len(content)) + content)
        slow_search.wait(1)
        clock.forward(100)
        assert get(f"{server}/healthz").status_code == 200
        slow_search.go_on.set()
        assert client.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("sent", [b"\r\n", head(content_length=2) + b"{}"], ids=["two bytes", "a request"])
def test_a_hang_up_is_seen_behind_what_was_sent_ahead(
    server: str, slow_search: SlowSearch, sent: bytes, at_once: bool
) -> None:
    client = slow_search.ask(server, {"question": "who is the king ?"}, after=sent if at_once else b"")
    slow_search.wait(1)
    if not at_once:
        client.sendall(sent)
    client.close()
    until(lambda: 'outcome="cancelled",route="/answer"' in get(f"{server}/metrics").text)


def test_requests_sent_ahead_are_answered_in_turn(server: str, slow_search: SlowSearch) -> None:
    client = slow_search.ask(server, {"question": "who is the king ?"})
    slow_search.wait(1)
    client.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2)
    client.sendall(b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    slow_search.go_on.set()
    assert re.findall(rb"HTTP/1.1 (\d+) ", received(client)) == [b"200", b"200", b"200", b"404"]


def test_a_client_that_sends_much_ahead_is_cut_off(server: str, slow_search: SlowSearch) -> None:
    client = slow_search.ask(server, {"question": "who is the king ?"})
    slow_search.wait(1)
    with pytest.raises(OSError, match=r"."):  # noqa: PT012
        while True:
            client.sendall(b"x" * MAX_AHEAD_BYTES)
    until(lambda: 'outcome="cancelled",route="/answer"' in get(f"{server}/metrics").text)


def test_a_head_that_is_too_large_is_refused(server: str) -> None:
    with connect(server) as client:
        client.sendall(head(x_padding="x" * MAX_HEAD_BYTES))
        response = received(client)
    # whole in one piece, or not yet whole when it is too large already
    assert response.startswith((b"HTTP/1.1 431 ", b"HTTP/1.1 400 "))
    assert get(f"{server}/healthz", headers={"x-padding": "x" * 8000}).status_code == 200


def test_a_websocket_is_no_way_in(server: str) -> None:
    upgrade = {"upgrade": "websocket", "connection": "upgrade", "sec-websocket-version": "13"}
    assert get(f"{server}/answer", headers={**upgrade, "sec-websocket-key": "eA=="}).status_code == 405
