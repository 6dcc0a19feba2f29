"""How JSON goes out: within bounds, beside all other calls, and without characters that end a line to some readers."""

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from openbook.storage.index_store import IndexStore
from openbook_client import results
from tests.fixtures.indexes import publish_tiny, tiny_passages
from tests.openbook.api.conftest import BODIES, PERU, MakeClient, Serve, ended_with, get, post
from tests.openbook.api.test_streaming import events_of, names
from tests.waiting import HELD_S, PATIENCE_S

V1: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": "openbook", "messages": [{"role": "user", "content": PERU}]},
    "/v1/responses": {"model": "openbook", "input": PERU},
}
CALLS = [*((path, False) for path in (*BODIES, "/answers", *V1)), *((path, True) for path in ("/answer", *V1))]
LARGE = (results.Answer, results.Scores, results.Retrieval, results.Comparison)
# The smallest that the setting may be.
MOST = 65_536
SEPARATORS = "\x85\u2028\u2029"


def asked(path: str, n_docs: int) -> dict[str, Any]:
    """A question over so many passages, as the call takes it."""
    if path in V1:
        return V1[path] | {"openbook": {"n_docs": n_docs}}
    question = BODIES["/answer"] | {"n_docs": n_docs}
    return {"questions": [question]} if path == "/answers" else BODIES[path] | {"n_docs": n_docs}


def with_texts(folder: Path, text_of: Callable[[str], str]) -> None:
    """Publish both versions again, with other texts and the vectors that they have."""
    for version in ("tiny-2016", "tiny-2018"):
        passages = [replace(passage, text=text_of(passage.text)) for passage in tiny_passages(version)]
        publish_tiny(IndexStore(folder), version, passages=passages, replace=True)


@pytest.fixture
def long(indexes_folder: Path, make_client: MakeClient) -> TestClient:
    """A service of passages with 8 kB each: eight of them are too large for a response."""
    with_texts(indexes_folder, lambda text: text + " river" * 1_340)
    return bounded(make_client())


def bounded(client: TestClient) -> TestClient:
    client.app.state.writer.most_bytes = MOST  # type: ignore[attr-defined]
    return client


@pytest.mark.parametrize("path", ["/answer", "/score", "/retrieve", "/compare"])
def test_a_response_that_is_too_large_is_refused(long: TestClient, path: str) -> None:
    response = long.post(path, json=asked(path, 12))
    assert ended_with(response) == (422, "response_too_large")
    assert "more than 65,536 bytes. Ask" in response.json()["detail"]
    response = long.post(path, json=asked(path, 3))
    assert response.status_code == 200
    assert 20_000 < len(response.content) <= MOST


@pytest.mark.parametrize("path", V1)
@pytest.mark.parametrize("stream", [False, True])
def test_clients_of_openais_api_are_refused_it_too(long: TestClient, path: str, stream: bool) -> None:
    response = long.post(path, json=asked(path, 12) | {"stream": stream})
    assert (response.status_code, response.json()["error"]["code"]) == (400, "response_too_large")
    assert long.post(path, json=asked(path, 2) | {"stream": stream}).status_code == 200


def test_a_comparison_counts_all_its_answers(long: TestClient) -> None:
    assert long.post("/answer", json=asked("/answer", 5)).status_code == 200
    assert ended_with(long.post("/compare", json=asked("/compare", 5))) == (422, "response_too_large")


def test_a_stream_ends_before_the_event_that_has_no_room(long: TestClient) -> None:
    response = long.post("/answer", json=asked("/answer", 12) | {"stream": True})
    assert ended_with(response) == (422, "response_too_large")
    response = long.post("/answer", json=asked("/answer", 5) | {"stream": True})
    events = events_of(response.text)
    assert (names(events)[0], names(events)[-1]) == ("passages", "error")
    assert (events[-1][1]["code"], events[-1][1]["status"]) == ("response_too_large", 422)
    assert 40_000 < len(response.content) < MOST + 1_000


def test_the_answers_of_a_call_share_its_room(long: TestClient) -> None:
    question = asked("/answer", 4)
    response = long.post("/answers", json={"questions": [question] * 4 + [question | {"n_docs": 12}]})
    assert response.status_code == 200
    results = response.json()["results"]
    assert sorted(next(iter(one)) for one in results) == ["answer", *["error"] * 4]
    assert {one["error"]["code"] for one in results if "error" in one} == {"response_too_large"}
    assert len(response.content) < MOST + 4 * 1_000
    # one alone has room
    (alone,) = long.post("/answers", json={"questions": [question]}).json()["results"]
    assert list(alone) == ["answer"]


def test_bytes_count_and_not_characters(indexes_folder: Path, make_client: MakeClient) -> None:
    # JSON writes each as two
    with_texts(indexes_folder, lambda text: text + '"' * 8_000)
    client = bounded(make_client())
    for path in (*BODIES, *V1):
        response = client.post(path, json=asked(path, 5))
        assert response.status_code in (400, 422)
        assert "response_too_large" in response.text


def test_what_is_surely_too_large_is_not_even_made(long: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results.Answer, "model_validate", None)
    assert ended_with(long.post("/answer", json=asked("/answer", 12))) == (422, "response_too_large")


class HeldJson:
    """Holds all JSON of answers, scores, passages and comparisons while it is made, until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun, self.go_on, self.waited_in_vain = threading.Event(), threading.Event(), False
        validate = results.Part.model_validate.__func__  # type: ignore[attr-defined]

        def held(kind: type, *given: Any, **named: Any) -> Any:
            if kind in LARGE:
                self.begun.set()
                self.waited_in_vain = not self.go_on.wait(HELD_S) or self.waited_in_vain
            return validate(kind, *given, **named)

        monkeypatch.setattr(results.Part, "model_validate", classmethod(held))


@pytest.fixture
def held_json(monkeypatch: pytest.MonkeyPatch) -> Iterator[HeldJson]:
    held = HeldJson(monkeypatch)
    yield held
    held.go_on.set()
    assert not held.waited_in_vain


# of each way to write one
@pytest.mark.parametrize(("path", "stream"), [("/answer", False), ("/answers", False), ("/v1/responses", True)])
def test_the_service_answers_others_while_json_is_made(
    serve: Serve, held_json: HeldJson, path: str, stream: bool
) -> None:
    server = serve()
    with ThreadPoolExecutor(1) as clients:
        asking = clients.submit(post, f"{server}{path}", json=asked(path, 4) | ({"stream": True} if stream else {}))
        assert held_json.begun.wait(PATIENCE_S)
        for probe in ("/healthz", "/readyz", "/metrics"):
            assert get(f"{server}{probe}").status_code == 200
        assert not asking.done()
        held_json.go_on.set()
        assert asking.result().status_code == 200


def test_nothing_in_a_response_ends_a_line_elsewhere(indexes_folder: Path, make_client: MakeClient) -> None:
    with_texts(indexes_folder, lambda text: text + SEPARATORS)
    client = make_client()
    for path, stream in CALLS:
        response = client.post(path, json=asked(path, 4) | ({"stream": True} if stream else {}))
        assert response.status_code == 200
        assert not [one for one in SEPARATORS if one.encode() in response.content]
        # nothing is lost
        lines = [line.removeprefix("data: ") for line in response.text.split("\n") if "\\u2028" in line]
        assert lines
        assert all(SEPARATORS in json.dumps(json.loads(line), ensure_ascii=False) for line in lines)
