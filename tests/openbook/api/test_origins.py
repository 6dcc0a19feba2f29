"""Pages of other sites: which may ask, what their browser lets them read, and that none administers."""

import httpx
import pytest
from starlette.testclient import TestClient

from openbook.api.access import MOST_ATTEMPTS
from tests.openbook.api.conftest import ADMIN, PERU, PINNED, MakeClient, ended_with

DOCS, OTHER = "https://docs.example.org", "https://elsewhere.example"
ORIGINS = f"{DOCS}, http://localhost:3000"
FROM_DOCS = {"origin": DOCS, "sec-fetch-site": "cross-site"}
QUESTION = PINNED["/answer"]


@pytest.fixture
def open_to_docs(make_client: MakeClient) -> TestClient:
    return make_client(allowed_origins=ORIGINS)


def preflight(client: TestClient, path: str, origin: str, **more: str) -> httpx.Response:
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    headers = {"origin": origin, "sec-fetch-site": "cross-site", **asks, **more}
    return client.options(path, headers=headers)


def readable_by(response: httpx.Response) -> str | None:
    assert "Origin" in response.headers["vary"].split(", ")
    assert "access-control-allow-credentials" not in response.headers
    return response.headers.get("access-control-allow-origin")


def test_a_page_of_an_allowed_origin_asks(open_to_docs: TestClient) -> None:
    allowed = preflight(open_to_docs, "/answer", DOCS, **{"access-control-request-private-network": "true"})
    assert (allowed.status_code, readable_by(allowed)) == (200, DOCS)
    assert allowed.headers["access-control-allow-methods"] == "GET, POST"
    assert allowed.headers["access-control-allow-headers"] == "authorization,content-type"
    assert allowed.headers["access-control-allow-private-network"] == "true"
    response = open_to_docs.post("/answer", json=QUESTION, headers=FROM_DOCS)
    assert (response.status_code, readable_by(response)) == (200, DOCS)
    assert response.headers["access-control-expose-headers"] == "x-request-id, retry-after"
    assert response.headers["x-request-id"]


def test_a_page_of_an_allowed_origin_reads_a_stream_and_an_error(open_to_docs: TestClient) -> None:
    stream = open_to_docs.post("/answer", json=QUESTION | {"stream": True}, headers=FROM_DOCS)
    assert (stream.status_code, readable_by(stream)) == (200, DOCS)
    assert "event: answer" in stream.text
    wrong = open_to_docs.post("/answer", json={"question": PERU, "n_docs": 0}, headers=FROM_DOCS)
    assert (*ended_with(wrong), readable_by(wrong)) == (422, "invalid_request", DOCS)


@pytest.mark.parametrize("origin", [OTHER, "null", "http://docs.example.org", "https://docs.example.org.evil.example"])
def test_another_origin_is_told_nothing(open_to_docs: TestClient, origin: str) -> None:
    assert ended_with(open_to_docs.post("/answer", json=QUESTION, headers={"origin": origin})) == (
        403,
        "origin_refused",
    )
    refused = preflight(open_to_docs, "/answer", origin)
    assert ended_with(refused) == (403, "origin_refused")
    assert "access-control-allow-origin" not in refused.headers
    assert readable_by(open_to_docs.get("/index", headers={"origin": origin})) is None


def test_the_services_own_page_asks_as_before(open_to_docs: TestClient) -> None:
    own = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert open_to_docs.post("/answer", json=QUESTION, headers=own).status_code == 200
    assert open_to_docs.post("/index/swap", json={"version": "tiny-2018"}, headers=own | ADMIN).status_code == 200


def test_no_page_of_another_site_administers(open_to_docs: TestClient) -> None:
    calls = [("POST", f"/index/{name}", {"version": "tiny-2018"}) for name in ("swap", "load")]
    calls += [("POST", "/index/rollback", {}), ("GET", "/index/history", None)]
    for method, path, body in calls:
        response = open_to_docs.request(method, path, json=body, headers=FROM_DOCS | ADMIN)
        assert ended_with(response) == (403, "origin_refused"), path
        assert "no other site may administer" in response.json()["detail"]
    assert open_to_docs.get("/index").json()["live"]["generation"] == 0


def test_a_page_of_another_site_cannot_guess_the_token(open_to_docs: TestClient) -> None:
    wrong = FROM_DOCS | {"authorization": "Bearer open says me"}
    for _ in range(2 * MOST_ATTEMPTS):
        assert ended_with(open_to_docs.get("/index/history", headers=wrong)) == (403, "origin_refused")
    # nor lock the administrator out
    assert open_to_docs.get("/index/history", headers=ADMIN).status_code == 200
