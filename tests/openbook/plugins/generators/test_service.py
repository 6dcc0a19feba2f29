"""A service whose generator is a server: what it says of it, and what happens when the server fails or changes."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.api.composition import load_engine
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from tests.fixtures.causal import PROMPT
from tests.fixtures.language_servers import LanguageServer, Serving
from tests.openbook.api.conftest import PERU, client_of, connect, ended_with, head, serving
from tests.openbook.api.test_streaming import streaming_from
from tests.waiting import HELD_S, until

ASKED = {"question": PERU, "n_docs": 3, "max_new_tokens": 4, "abstain": "never"}
SINGLE = ASKED | {"model": "single-prompt", "max_new_tokens": 12}
Start = Callable[[LanguageServer], TestClient]


@pytest.fixture(autouse=True)
def in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("FIRST_PAUSE_S", 0.01), ("PAUSE_S", 0.05), ("WATCH_S", 0.05)):
        monkeypatch.setattr(f"openbook.plugins.generators.server.{name}", seconds)


def settings_of(settings: Settings, server: LanguageServer) -> Settings:
    prompt = Path(settings.indexes) / "prompt.json"
    # the tiny model reads no longer one
    prompt.write_text(json.dumps(replace(PROMPT, refusals=()).content()), encoding="utf-8")
    own = {"generator": server.url, "generator_concurrency": 2, "prompt": prompt, "single_prompt": prompt}
    return settings.model_copy(update=own)


@pytest.fixture
def start(settings: Settings) -> Iterator[Start]:
    """A client of a service whose generator is this server."""
    with ExitStack() as stack:

        def started(server: LanguageServer) -> TestClient:
            own = settings_of(settings, server)
            return stack.enter_context(client_of(create_app(own, engine=load_engine(own))))

        yield started


def answered(client: TestClient, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = client.post("/answer", json=ASKED | more).raise_for_status().json()
    return body


def test_the_server_answers_behind_the_checkpoints_encoder_and_prior(start: Start, language_servers: Serving) -> None:
    client = start(language_servers())
    best = answered(client)
    assert best["model"] == "sequence"
    assert best["checkpoint"].startswith("tiny+tiny@")
    assert sum(passage["posterior"] for passage in best["passages"]) == pytest.approx(1)
    assert sum(token["log_prob"] for token in best["tokens"]) == pytest.approx(best["log_prob"], abs=1e-4)
    asked = {"question": PERU, "n_docs": 3, "targets": ["the 12", "of b"]}
    scored = client.post("/score", json=asked).raise_for_status().json()
    assert sum(one["probability"] for one in scored["targets"]) == pytest.approx(1)
    texts = {"model": "openbook", "query": PERU, "documents": ["the queen of peru", "the sea"]}
    reranked = client.post("/v1/rerank", json=texts).raise_for_status().json()["results"]
    assert all(0 < one["relevance_score"] < 1 for one in reranked)
    able = {"model": "tiny", "decodings": ["fast", "thorough"], "problem": None}
    assert client.get("/readyz").json()["generator"] == client.get("/index").json()["generator"] == able


def test_what_the_server_cannot_do_is_refused_and_not_the_default(start: Start, language_servers: Serving) -> None:
    server = language_servers(echo=False)
    client = start(server)
    assert answered(client)["answers"]
    assert client.get("/readyz").json()["generator"]["decodings"] == ["fast"]
    before = len(server.bodies)
    for more in ({"decoding": "thorough"}, {"model": "token"}, {"leave_one_out": True}):
        assert ended_with(client.post("/answer", json=ASKED | more)) == (409, "generator_lacks")
    refused = client.post("/score", json={"question": PERU, "targets": ["a", "b"]})
    assert ended_with(refused) == (409, "generator_lacks")
    assert len(server.bodies) == before


def test_another_model_behind_the_address_is_another_checkpoint(start: Start, language_servers: Serving) -> None:
    server = language_servers()
    client = start(server)
    name = answered(client)["checkpoint"]
    assert answered(client)["checkpoint"] == name
    server.habits.model = "tiny-2"
    until(lambda: client.get("/readyz").json()["checkpoint"] != name)
    until(lambda: client.post("/answer", json=ASKED).status_code == 200)
    assert answered(client)["checkpoint"].startswith("tiny+tiny-2@")


def test_a_busy_server_is_asked_again(start: Start, language_servers: Serving) -> None:
    server = language_servers()
    client = start(server)
    server.habits.statuses = [429, 503, 429]
    assert answered(client)["answers"]


def test_a_server_that_fails_fails_questions_until_it_answers(start: Start, language_servers: Serving) -> None:
    server = language_servers()
    client = start(server)
    server.habits.statuses = [503] * 100
    assert ended_with(client.post("/answer", json=ASKED)) == (503, "generator_unreachable")
    server.habits.statuses = []
    until(lambda: client.get("/readyz").status_code == 200)
    assert answered(client)["answers"]
    server.habits.statuses = [400]
    assert ended_with(client.post("/answer", json=ASKED)) == (502, "generator_failed")


@pytest.mark.parametrize(("model", "requests"), [("sequence", 2), ("single-prompt", 1)])
def test_a_question_whose_time_is_up_closes_its_requests(
    start: Start, language_servers: Serving, model: str, requests: int
) -> None:
    server = language_servers()
    client = start(server)
    server.habits.pause_s = HELD_S
    late = ASKED | {"model": model, "timeout_s": 0.4, "max_new_tokens": 30}
    left = len(server.hung_up)

    def a_late_one_hung_up() -> bool:
        # on a busy machine the time may be up before the server is asked
        assert ended_with(client.post("/answer", json=late)) == (504, "deadline_exceeded")
        return len(server.hung_up) >= left + requests

    until(a_late_one_hung_up)


def test_no_more_requests_are_under_way_than_the_limit(start: Start, language_servers: Serving) -> None:
    server = language_servers()
    client = start(server)
    until(lambda: not server.under_way)
    before = len(server.bodies)
    server.habits.pause_s = HELD_S
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(answered, client, n_docs=6, timeout_s=100)
        until(lambda: server.under_way == 2)
        # a third would be here by now
        time.sleep(0.3)
        assert len(server.bodies) == before + 2
        server.habits.pause_s = 0
        assert len(answer.result()["passages"]) == 6
    assert len(server.bodies) > before + 6


@pytest.mark.parametrize("model", ["sequence", "single-prompt"])
def test_a_client_that_hangs_up_closes_the_requests(settings: Settings, language_servers: Serving, model: str) -> None:
    server = language_servers()
    own = settings_of(settings, server)
    with serving(create_app(own, engine=load_engine(own)), own) as address:
        server.habits.pause_s = HELD_S
        body = json.dumps(ASKED | {"model": model, "max_new_tokens": 60, "timeout_s": 100}).encode()
        before, left = len(server.bodies), len(server.hung_up)
        with connect(address) as client:
            client.sendall(head(content_length=len(body)) + body)
            until(lambda: any(one.get("stream") for one in server.bodies[before:]))
        until(lambda: len(server.hung_up) > left)


def test_an_address_that_no_plug_in_opens_is_refused(settings: Settings) -> None:
    with pytest.raises(SettingInvalid, match=r"installed: http://, https://"):
        load_engine(settings.model_copy(update={"generator": "gopher://host"}))


# --- a single prompt ---------------------------------------------------------------------------------------


def test_the_response_says_what_was_measured(start: Start, language_servers: Serving) -> None:
    client = start(language_servers())
    best = client.post("/answer", json=SINGLE).raise_for_status().json()
    assert (best["model"], best["posterior_kind"]) == ("single-prompt", "prior")
    assert [one["posterior"] for one in best["passages"]] == [one["prior"] for one in best["passages"]]
    assert "".join(token["text"] for token in best["tokens"]).removesuffix("</s>").strip() == best["answer"]
    assert best["audit"]["reason"] is None
    for one in best["audit"]["sentences"]:
        assert best["answer"][one["start"] : one["end"]] == one["text"]
        assert len(one["support"]) == 3
    assert answered(client)["audit"] is None


def test_tokens_are_told_while_the_server_says_them(settings: Settings, language_servers: Serving) -> None:
    server = language_servers()
    own = settings_of(settings, server)
    events: list[tuple[str, dict[str, Any]]] = []
    under_way: list[int] = []
    with serving(create_app(own, engine=load_engine(own)), own) as address:
        # the server holds its fourth token back until the service has told the first
        server.habits.pause_s, server.habits.pause_after = HELD_S, 3
        with streaming_from(address, SINGLE | {"stream": True, "timeout_s": 100}) as coming:
            for name, data in coming:
                events.append((name, data))
                if name == "token":
                    under_way.append(server.under_way)
                    server.habits.pause_s = 0
    assert under_way[0] == 1
    assert [name for name, _ in events][:1] == ["passages"]
    told = [data for name, data in events if name == "token"]
    (answer,) = [data for name, data in events if name == "answer"]
    assert told == answer["tokens"]
    assert len(told) > 3


def test_an_answer_that_breaks_off_is_not_begun_again(start: Start, language_servers: Serving) -> None:
    server = language_servers()
    client = start(server)
    whole = answered(client)
    server.habits.breaks_after = 0
    assert answered(client)["answers"] == whole["answers"]
    server.habits.breaks_after = 2
    assert ended_with(client.post("/answer", json=SINGLE)) == (502, "generator_failed")
