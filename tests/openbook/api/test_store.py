"""A service whose versions lie in an object store: its start, what it says meanwhile, and a swap."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.application import first_index
from openbook.errors import StoreUnreachable
from openbook.plugins.objects import fsspec_store, remote_store
from openbook.plugins.objects.fsspec_store import FsspecStore
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook.storage.opening import store_of
from tests.fixtures.stores import Silence, push_all
from tests.openbook.api.conftest import ADMIN, PINNED, client_of, ended_with
from tests.waiting import until

# Longer than any look at what it holds.
HOLD_S = 240


@pytest.fixture(autouse=True)
def trying(soon_again: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_store, "AWAY_S", 0.05)
    monkeypatch.setattr(first_index, "FIRST_PAUSE_S", 0.02)
    monkeypatch.setattr(first_index, "LONGEST_PAUSE_S", 0.02)


@pytest.fixture
def settings(store_url: str, tiny_indexes: Path, settings: Settings, tmp_path: Path) -> Settings:
    push_all(store_url, tiny_indexes)
    # seldom: a test of the start must not depend on the follower
    return settings.model_copy(update={"indexes": store_url, "cache": tmp_path / "cache", "follow_s": 3600.0})


def ready(client: TestClient) -> dict[str, Any]:
    """What /readyz says at last, when the swap that made the first version live has ended, too."""
    until(lambda: client.get("/readyz").status_code == 200)
    until(lambda: client.get("/index/swap").json()["state"] != "running")
    found: dict[str, Any] = client.get("/readyz").json()
    return found


def test_a_new_pod_pulls_what_current_names_and_says_so(
    app: FastAPI, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, read = threading.Event(), FsspecStore.read

    def held(self: FsspecStore, path: str, start: int, *more: Any) -> bytes:
        if start >= 512:
            assert gate.wait(HOLD_S)
        return read(self, path, start, *more)

    monkeypatch.setattr(FsspecStore, "read", held)
    with client_of(app) as client:
        until(lambda: (client.get("/index/swap").json()["fraction"] or 0) > 0.1)
        waiting = client.get("/readyz")
        assert ended_with(waiting) == (503, "not_ready")
        assert "'tiny-2016' is being fetched from the store. Stage of the swap: pull, " in waiting.json()["detail"]
        assert "% of it done" in waiting.json()["detail"]
        refused = client.post("/answer", json=PINNED["/answer"])
        assert ended_with(refused) == (503, "not_ready")
        assert "retry-after" in refused.headers
        assert client.get("/healthz").status_code == 200
        listed = client.get("/index").json()
        assert (listed["live"], listed["versions"]) == (None, ["tiny-2016", "tiny-2018"])
        gate.set()
        assert ready(client)["index"]["version"] == "tiny-2016"
        assert client.post("/answer", json=PINNED["/answer"]).json()["index"]["version"] == "tiny-2016"
        swapped = client.post("/index/swap", json={"version": "tiny-2018"}, headers=ADMIN).json()
        assert (swapped["version"], swapped["durable"], "pull" in swapped["seconds"]) == ("tiny-2018", True, True)
        assert client.get("/index/tiny-2018").json()["version"] == "tiny-2018"
        pulled = sum(
            file["bytes"]
            for version in ("tiny-2016", "tiny-2018")
            for file in client.get(f"/index/{version}").json()["files"].values()
        )
        assert f"openbook_pulled_bytes_total {float(pulled)}" in client.get("/metrics").text
        unknown = client.post("/index/swap", json={"version": "nobody"}, headers=ADMIN)
        assert ended_with(unknown) == (404, "unknown_index")
    # what the store has is not on the disk as it was: a restart finds its copy at once
    with client_of(create_app(settings, engine=app.state.services.engine)) as again:
        assert again.get("/readyz").json()["index"] == {
            "version": "tiny-2018",
            "generation": 0,
            "snapshot_date": "2018-12-20",
        }


def test_the_first_version_of_a_guarded_service_is_not_forced(
    settings: Settings, engine: RagEngine, tmp_path: Path
) -> None:
    guard = tmp_path / "guard.jsonl"
    guard.write_text(json.dumps({"question": "who is the president of peru ?", "must_refuse": True}))
    guarded = settings.model_copy(update={"guard": guard})
    with client_of(create_app(guarded, engine=engine)) as client:
        assert ready(client)["index"]["version"] == "tiny-2016"
        (first,) = client.get("/index/history", headers=ADMIN).json()["swaps"]
        assert (first["actor"], first["outcome"], first["detail"]) == ("start", "ok", "")


def test_a_start_without_the_store_says_why_and_keeps_trying(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as away:

        def refuse(self: FsspecStore, *more: object) -> None:
            raise StoreUnreachable(url=self.url, reason="Connection refused")

        away.setattr(FsspecStore, "_call", refuse)
        with client_of(app) as client:
            until(lambda: "Connection refused" in client.get("/readyz").json()["detail"])
            waiting = client.get("/readyz")
            assert ended_with(waiting) == (503, "not_ready")
            assert (
                "There is no index yet, and it is tried again. The store of indexes file://"
                in (waiting.json()["detail"])
            )
            assert client.get("/index").json()["versions"] == []
            named = client.post("/answer", json=PINNED["/answer"] | {"index": "tiny-2018"})
            assert ended_with(named) == (503, "not_ready")
            away.undo()
            assert ready(client)["index"]["version"] == "tiny-2016"
    assert sum("there is no index yet" in one.message for one in caplog.records) == 1
    assert "Traceback" not in caplog.text


def test_a_store_that_is_silent_holds_up_nobody_who_needs_no_answer_of_it(
    make_client: Callable[..., TestClient], silence: Silence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fsspec_store, "SMALL_CALL_S", 3600.0)
    monkeypatch.setattr(remote_store, "LOOK_S", 0.0)
    monkeypatch.setattr(remote_store, "PATIENCE_S", 3600.0)
    client = make_client(feedback=tmp_path / "feedback.jsonl")
    ready(client)
    rated = client.post("/answer", json=PINNED["/answer"]).headers["x-request-id"]
    with ThreadPoolExecutor(40) as anyone, silence.kept():
        # no manifest of it has been read yet: these wait for the store, or for the one who asks it
        waiting = [anyone.submit(client.get, "/index/tiny-2018") for _ in range(40)]
        until(lambda: silence.calls > 1)
        assert client.get("/index").json()["versions"] == ["tiny-2016", "tiny-2018"]
        assert client.get("/readyz").status_code == 200
        swap = client.post("/index/swap", json={"version": "tiny-2018", "wait": False}, headers=ADMIN)
        assert swap.status_code == 202
        assert client.get("/index/swap").json()["state"] == "running"
        assert client.get("/index/history", headers=ADMIN).status_code == 200
        assert client.post("/feedback", json={"request_id": rated, "rating": "up"}).status_code == 200
    assert {one.result().status_code for one in waiting} == {200}


def test_a_service_that_ends_while_it_pulls_ends_soon_and_goes_on_later(
    app: FastAPI, settings: Settings, engine: RagEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openbook.api.composition.SHUTDOWN_S", 0.05)
    read = FsspecStore.read

    def slow(self: FsspecStore, path: str, start: int, end: int, ending: threading.Event) -> bytes:
        if start >= 512:
            ending.wait(HOLD_S)
        return read(self, path, start, end, ending)

    with monkeypatch.context() as slowly:
        slowly.setattr(FsspecStore, "read", slow)
        with client_of(app) as client:
            until(lambda: (client.get("/index/swap").json()["fraction"] or 0) > 0.1)
    parts = list(store_of(settings).folder.glob(".pulling-*/*.part"))
    assert [part.stat().st_size for part in parts] == [512]
    with client_of(create_app(settings, engine=engine)) as client:
        assert ready(client)["index"]["version"] == "tiny-2016"
    assert not list(store_of(settings).folder.glob(".pulling-*"))
    line = json.loads((store_of(settings).folder / "history.jsonl").read_text().splitlines()[0])
    assert (line["outcome"], line["actor"]) == ("not_ready", "start")
