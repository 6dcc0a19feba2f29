"""A service that wants keys: who may ask, how often, what the log says, and streams whose key is gone."""

import logging
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from openbook.api import streaming
from openbook.api.access import MOST_ATTEMPTS
from openbook.api.app import create_app
from openbook.api.logs import FACTS
from openbook.errors import SettingInvalid
from openbook.plugins.keys import keys_file
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook_client import Openbook, Refused
from openbook_client.errors import RateExceeded
from tests.openbook.api.conftest import ADMIN, PINNED, MakeClient, Serve, SlowSearch, ended_with
from tests.openbook.plugins.keys.test_keys_file import ANNA, BO, line
from tests.waiting import PATIENCE_S

HERS, HIS, WRONG = ({"authorization": f"Bearer {key.decode()}"} for key in (ANNA, BO, b"open says me"))
QUESTION = PINNED["/answer"]
CHAT = {"model": "openbook", "messages": [{"role": "user", "content": "who ?"}]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.write_text(line("anna", ANNA) + line("bo", BO, " 2/min"))
    return path


@pytest.fixture
def guarded(make_client: MakeClient, path: Path) -> TestClient:
    return make_client(api_keys_file=path)


def calls_of(document: dict[str, dict[str, dict[str, object]]]) -> list[tuple[str, str, bool]]:
    """Method, address and whether it takes the admin token, of every call."""
    return [
        (method.upper(), path.replace("{", "").replace("}", ""), "security" in operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]


def test_every_call_wants_a_key_but_probes_pages_and_administration(guarded: TestClient) -> None:
    calls = calls_of(guarded.get("/openapi.json").json())
    assert len(calls) > 20
    free = {"/healthz", "/health", "/readyz", "/metrics"}
    for method, path, administers in calls:
        response = guarded.request(method, path, json={} if method == "POST" else None)
        if path in free:
            assert response.status_code == 200
            continue
        assert response.status_code == 401
        assert response.headers["www-authenticate"].startswith("Bearer")
        assert ("<the admin token>" if administers else "<an API key>") in response.text, path
    for path in ("/", "/docs", "/static/main.js"):
        assert guarded.get(path).status_code == 200
    assert ended_with(guarded.get("/nowhere")) == (401, "unauthorized")


def test_a_key_opens_and_so_does_the_admin_token_and_a_key_does_not_administer(guarded: TestClient) -> None:
    for headers in (HERS, HIS, ADMIN, {"authorization": f"bearer  {ANNA.decode()}"}):
        assert guarded.post("/answer", json=QUESTION, headers=headers).status_code == 200
    assert guarded.post("/v1/chat/completions", json=CHAT, headers=HERS).status_code == 200
    assert guarded.get("/version", headers=HERS).status_code == 200
    refused = guarded.post("/index/swap", json={"version": "tiny-2018"}, headers=HERS)
    assert ended_with(refused) == (401, "unauthorized")
    assert guarded.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN).status_code == 200
    chat = guarded.post("/v1/chat/completions", json=CHAT)
    assert (chat.status_code, chat.json()["error"]["code"]) == (401, "unauthorized")


def test_without_an_admin_token_an_empty_one_opens_nothing(make_client: MakeClient, path: Path) -> None:
    client = make_client(api_keys_file=path, admin_token=None)
    for given in ("Bearer", "Bearer ", "Bearer  ", "Basic YTpi", f"Token {ANNA.decode()}"):
        response = client.get("/index", headers={"authorization": given})
        assert ended_with(response) == (401, "unauthorized"), given


def test_wrong_keys_are_counted_and_none_that_is_missing(guarded: TestClient) -> None:
    for _ in range(2 * MOST_ATTEMPTS):
        assert ended_with(guarded.get("/index")) == (401, "unauthorized")
    for _ in range(MOST_ATTEMPTS):
        assert ended_with(guarded.get("/index", headers=WRONG)) == (401, "unauthorized")
    response = guarded.get("/index", headers=HERS)
    assert ended_with(response) == (429, "too_many_attempts")
    assert int(response.headers["retry-after"]) > 0


def test_each_name_has_its_rate(guarded: TestClient) -> None:
    for _ in range(2):
        assert guarded.post("/retrieve", json=PINNED["/retrieve"], headers=HIS).status_code == 200
    response = guarded.post("/retrieve", json=PINNED["/retrieve"], headers=HIS)
    assert ended_with(response) == (429, "rate_exceeded")
    assert 0 < int(response.headers["retry-after"]) <= 30
    # looking costs nothing, and others are others
    assert guarded.get("/index", headers=HIS).status_code == 200
    assert guarded.post("/retrieve", json=PINNED["/retrieve"], headers=HERS).status_code == 200


def test_log_and_metrics_name_the_reader_and_hold_no_key(guarded: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "openbook.access"):
        guarded.post("/answer", json=QUESTION, headers=HERS)
        for _ in range(3):
            guarded.post("/retrieve", json={}, headers=HIS)
        guarded.get("/index", headers=WRONG)
    facts = [vars(record)[FACTS] for record in caplog.records if record.name == "openbook.access"]
    assert [one.get("reader") for one in facts] == ["anna", "bo", "bo", "bo", None]
    assert (facts[0]["index"], facts[3]["outcome"]) == ("tiny-2016", "rate_exceeded")
    metrics = guarded.get("/metrics").text
    assert 'openbook_reader_requests_total{reader="anna"} 1.0' in metrics
    assert 'openbook_reader_requests_total{reader="bo"} 3.0' in metrics
    assert ANNA.decode() not in metrics + str([vars(record) for record in caplog.records])


def test_a_stream_whose_key_is_gone_ends_at_the_next_event(
    serve: Serve, path: Path, slow_search: SlowSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_file, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(streaming, "HEARTBEAT_S", 0.05)
    server = serve(api_keys_file=path)
    body = QUESTION | {"stream": True}
    with httpx.stream(
        "POST", f"{server}/answer", json=body, headers=HERS, timeout=PATIENCE_S, verify=False
    ) as response:
        assert response.status_code == 200
        lines = response.iter_lines()
        next(lines)
        path.write_text(line("bo", BO))
        rest = "\n".join(lines)
    assert "event: error" in rest
    assert '"code":"unauthorized"' in rest
    assert "the key was taken back" in rest
    slow_search.go_on.set()


def test_a_page_of_an_allowed_origin_asks_with_a_key_and_hears_that_it_needs_one(
    make_client: MakeClient, path: Path
) -> None:
    client = make_client(api_keys_file=path, allowed_origins="https://docs.example.org")
    origin = {"origin": "https://docs.example.org"}
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    assert client.options("/answer", headers=origin | asks).status_code == 200
    for headers, status in (({}, 401), (HERS, 200)):
        response = client.post("/answer", json=QUESTION, headers=origin | headers)
        assert (response.status_code, response.headers["access-control-allow-origin"]) == (status, origin["origin"])


def test_the_client_sends_its_token_as_a_key(serve: Serve, path: Path) -> None:
    server = serve(api_keys_file=path)
    with Openbook(server, token=BO.decode(), retries=0) as service:
        for _ in range(2):
            assert service.retrieve("who is the president of peru ?", n_docs=2).passages
        with pytest.raises(RateExceeded):
            service.retrieve("who is the president of peru ?", n_docs=2)
    with Openbook(server, retries=0) as service, pytest.raises(Refused, match="API key"):
        service.index()


def test_a_broken_file_stops_the_start(settings: Settings, engine: RagEngine, path: Path, tmp_path: Path) -> None:
    def start(named: Path) -> FastAPI:
        return create_app(settings.model_copy(update={"api_keys_file": named}), engine=engine)

    cases: list[tuple[Callable[[], object], str]] = [
        (lambda: path.write_text(f"# mine\n{ANNA.decode()}\n"), r"line 2 is not NAME sha256:HEX \[RATE/min\]\.$"),
        (path.unlink, r"keys cannot be read: No such file or directory\.$"),
        (path.mkdir, r"keys cannot be read: "),
    ]
    for spoil, told in cases:
        spoil()
        with pytest.raises(SettingInvalid, match=rf"^OPENBOOK_API_KEYS_FILE: {told}"):
            start(path)
    # a secret of Kubernetes is a link
    (tmp_path / "real").write_text(line("anna", ANNA))
    (tmp_path / "link").symlink_to(tmp_path / "real")
    start(tmp_path / "link")
