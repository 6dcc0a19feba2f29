"""/metrics counts every request once, and no label holds what a client made up."""

import re
from collections.abc import Callable

from fastapi import FastAPI
from starlette.testclient import TestClient

from openbook import errors
from openbook.api.problems import HTTP_CODES
from tests.openbook.api.conftest import ADMIN

Sample = tuple[str, dict[str, str], float]

QUESTION = {"question": "who is the king ?", "max_new_tokens": 2}
MADE_UP = "made-up-by-a-client"


def samples(client: TestClient) -> list[Sample]:
    lines = [line for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]
    found = []
    for line in lines:
        name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()  # type: ignore[union-attr]
        found.append((name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")), float(value)))
    return found


def ask_everything(client: TestClient) -> int:
    """Calls that go well and calls that do not, with names that no label may hold. Returns how many."""
    calls: list[Callable[[], object]] = [
        lambda: client.post("/answer", json=QUESTION),
        lambda: client.post("/retrieve", json={"question": MADE_UP}),
        lambda: client.post("/compare", json=QUESTION | {"versions": ["tiny-2016", "tiny-2018"]}),
        lambda: client.post("/score", json={"question": "who ?", "targets": ["king", "queen"]}),
        lambda: client.post("/answer", json=QUESTION | {"index": MADE_UP}),
        lambda: client.post("/answer", json={MADE_UP: 1}),
        lambda: client.post("/answer", content=b"{" + MADE_UP.encode()),
        lambda: client.get(f"/index/{MADE_UP}"),
        lambda: client.get(f"/index/{MADE_UP}-2"),
        lambda: client.get(f"/static/{MADE_UP}"),
        lambda: client.get(f"/{MADE_UP}"),
        lambda: client.get(f"/{MADE_UP}/{MADE_UP}?{MADE_UP}"),
        lambda: client.request(MADE_UP, "/answer"),
        lambda: client.get("/", headers={"x-request-id": MADE_UP}),
        lambda: client.get("/", headers={"host": MADE_UP}),
        lambda: client.get("/readyz"),
        lambda: client.get("/index/history", headers={"authorization": f"Bearer {MADE_UP}"}),
        lambda: client.post("/index/swap", json={"version": MADE_UP}, headers=ADMIN),
        lambda: client.post(
            "/index/swap", json={"version": "tiny-2018"}, headers={**ADMIN, "x-openbook-actor": MADE_UP}
        ),
    ]
    for call in calls:
        call()
    return len(calls)


def test_no_label_holds_what_a_client_made_up(client: TestClient, app: FastAPI) -> None:
    ask_everything(client)
    routes = set(app.openapi()["paths"]) | {"/", "/docs", "/static/{name}", "unmatched"}
    codes = {
        one.code for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.OpenbookError)
    }
    outcomes = codes | set(HTTP_CODES.values()) | {"ok", "cancelled", "not_durable"}
    allowed = {
        "route": routes,
        "outcome": outcomes,
        "code": outcomes,
        "version": {"tiny-2016", "tiny-2018"},
        "stage": {"queue", "encode", "retrieve", "generate", "total"}
        | {"verify", "open", "drain", "warm", "flip", "current"},
    }
    for name, labels, _ in samples(client):
        if name.startswith("openbook_"):
            for label, value in labels.items():
                assert label in {"le", "snapshot_date"} or value in allowed[label], (name, labels)


def test_every_request_is_counted_once_under_one_outcome(client: TestClient) -> None:
    asked = ask_everything(client)
    counted = [(labels, value) for name, labels, value in samples(client) if name == "openbook_requests_total"]
    # the scrape itself is counted when it is over
    assert sum(value for _, value in counted) == asked
    per_route = {(labels["route"], labels["outcome"]): value for labels, value in counted}
    answers = {outcome: value for (route, outcome), value in per_route.items() if route == "/answer"}
    refused = ("unknown_index", "invalid_request", "unsupported_media_type", "method_not_allowed")
    assert answers == dict.fromkeys(("ok", *refused), 1)
    assert per_route["/", "ok"] == per_route["/static/{name}", "not_found"] == per_route["/index/swap", "ok"] == 1
    assert per_route["/index/{version}", "unknown_index"] == 2
    assert per_route["unmatched", "not_found"] == 2
