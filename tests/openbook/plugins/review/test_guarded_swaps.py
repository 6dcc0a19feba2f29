"""Swaps that a guard holds up, over HTTP: what is refused, forced, recorded, and what readers notice of it."""

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from openbook.rag.engine import RagEngine
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny
from tests.openbook.api.conftest import ADMIN, PERU, MakeClient, Serve
from tests.openbook.storage.mappings import until_unmapped
from tests.waiting import PATIENCE_S, until

WriteGuard = Callable[..., Path]

# Questions of a reader without a pause: such a one may hold up a check for as long as it reads.
MOST_READ = 50


@pytest.fixture
def write_guard(tmp_path: Path) -> WriteGuard:
    def write(*lines: Mapping[str, object]) -> Path:
        path = tmp_path / "guard.jsonl"
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.fixture
def broken_guard(make_client: MakeClient, write_guard: WriteGuard) -> Path:
    """What tiny-2016 answers holds, what tiny-2018 answers does not."""
    # its follower would go along with what a test swaps, and write that into the same history
    client = make_client(residents=2, follow_s=0.0)
    assert client.post("/index/load", json={"version": "tiny-2018"}, headers=ADMIN).status_code == 200
    old, new = (answer(client, index=version)["answer"] for version in ("tiny-2016", "tiny-2018"))
    assert old != new
    return write_guard(
        {"question": PERU, "must_not_contain": new},
        {"question": "where is nepal ?", "must_refuse": True, "warn": True},
    )


def answer(client: TestClient, **more: object) -> dict[str, Any]:
    response = client.post("/answer", json={"question": PERU, **more})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def swap(client: TestClient | httpx.Client, **more: object) -> Any:
    return client.post("/index/swap", json={"version": "tiny-2018", **more}, headers=ADMIN)


def history(client: TestClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/index/history", headers=ADMIN).json()["swaps"]
    return found


def last_check(client: TestClient) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/index").json()["last_check"]
    assert found.pop("time").endswith("+00:00")
    return found


def live(client: TestClient) -> tuple[str, int]:
    now = client.get("/index").json()["live"]
    return now["version"], now["generation"]


@pytest.mark.parametrize("asked", [{}, {"guard": True}])
def test_a_version_that_breaks_an_answer_is_refused_and_the_history_says_which(
    make_client: MakeClient, broken_guard: Path, indexes_folder: Path, asked: dict[str, object]
) -> None:
    client = make_client(guard=broken_guard, residents=1)
    before = answer(client)
    response = swap(client, **asked)
    problem = response.json()
    assert (response.status_code, problem["code"]) == (409, "guard_failed")
    (broken,) = problem["broken"]
    assert problem["n_broken"] == 1
    assert (broken["question"], broken["before"]) == (PERU, before["answer"])
    assert broken["broken"] == f"says {broken['after']!r}"
    assert live(client) == ("tiny-2016", 0)
    assert [one["version"] for one in client.get("/index").json()["resident"]] == ["tiny-2016"]
    assert IndexStore(indexes_folder).current() == "tiny-2016"
    newest = history(client)[0]
    assert (newest["version"], newest["outcome"], newest["generation"]) == ("tiny-2018", "guard_failed", None)
    assert PERU in newest["detail"]
    progress = client.get("/index/swap").json()
    assert (progress["state"], progress["stage"], progress["code"]) == ("failed", "guard", "guard_failed")
    assert last_check(client) == {"version": "tiny-2018", "questions": 2, "broken": 1, "left": 0}
    # anyone may read it, and a guard may name what must not be said
    assert broken["after"] not in progress["detail"]
    assert PERU not in progress["detail"]
    found = client.get("/metrics").text
    assert 'openbook_swaps_total{outcome="guard_failed"} 1.0' in found
    # the questions of the guard are no readers'
    assert 'openbook_stage_seconds_count{stage="total"} 1.0' in found


def test_a_version_that_holds_becomes_live_after_its_questions(
    make_client: MakeClient, write_guard: WriteGuard
) -> None:
    client = make_client(guard=write_guard({"question": PERU, "must_not_contain": "¿"}), residents=1)
    report = swap(client).json()
    assert list(report["seconds"]) == ["verify", "open", "warm", "guard", "flip", "current", "total"]
    assert live(client) == ("tiny-2018", 1)
    assert history(client)[0]["detail"] == ""
    assert last_check(client) == {"version": "tiny-2018", "questions": 1, "broken": 0, "left": 0}


def test_force_swaps_all_the_same_and_the_history_says_forced(make_client: MakeClient, broken_guard: Path) -> None:
    client = make_client(guard=broken_guard, residents=1)
    assert swap(client, force=True).status_code == 200
    assert live(client) == ("tiny-2018", 1)
    newest = history(client)[0]
    assert newest["outcome"] == "ok"
    assert newest["detail"].startswith(f"forced: 1 of 2 guarded answers break | {PERU}: says ")


def test_no_guard_is_asked_where_the_swap_wants_none_nor_by_a_rollback(
    make_client: MakeClient, write_guard: WriteGuard
) -> None:
    client = make_client(guard=write_guard({"question": PERU, "must_refuse": True}), residents=1)
    assert "guard" not in swap(client, guard=False).json()["seconds"]
    assert "guard" not in client.post("/index/rollback", json={}, headers=ADMIN).json()["seconds"]
    assert [one["detail"] for one in history(client)] == ["forced: no guarded question was asked"] * 2


def test_a_resident_that_breaks_a_guarded_answer_stays_open(make_client: MakeClient, broken_guard: Path) -> None:
    client = make_client(guard=broken_guard, residents=2)
    assert client.post("/index/load", json={"version": "tiny-2018"}, headers=ADMIN).status_code == 200
    assert swap(client).json()["code"] == "guard_failed"
    assert answer(client, index="tiny-2018")["index"]["version"] == "tiny-2018"
    assert live(client) == ("tiny-2016", 0)


def test_what_cannot_be_guarded_is_refused_before_anything_is_opened(
    make_client: MakeClient, write_guard: WriteGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = write_guard({"question": PERU}, {"question": "What?", "must_contian": "x"})
    client, without = make_client(guard=guard, residents=1), make_client(residents=1)
    monkeypatch.delattr(IndexStore, "open")
    for asked, said in (
        (lambda: swap(client), "guard.jsonl, line 2: must_contian: Extra inputs are not permitted"),
        (lambda: swap(client, policy="resource"), "so its answers cannot be checked beside it"),
        (lambda: swap(without, guard=True), "start it with OPENBOOK_GUARD"),
    ):
        problem = asked().json()
        assert (problem["status"], problem["code"]) == (409, "guard_unavailable"), problem
        assert said in problem["detail"]
    assert {one["outcome"] for one in history(client)} == {"guard_unavailable"}
    assert live(client) == ("tiny-2016", 0)


def test_a_check_that_takes_too_long_refuses_the_version_and_closes_it(
    make_client: MakeClient, write_guard: WriteGuard, indexes_folder: Path
) -> None:
    lines = [{"question": f"{PERU} {number}"} for number in range(1000)]
    client = make_client(guard=write_guard(*lines), guard_s=0.3, residents=1)
    problem = swap(client).json()
    assert (problem["code"], problem["n_broken"]) == ("guard_failed", 0)
    assert "has not ended within 0.3 s" in problem["detail"]
    until_unmapped(indexes_folder / "tiny-2018")
    assert live(client) == ("tiny-2016", 0)
    assert swap(client, force=True).status_code == 200


def test_a_check_for_which_readers_leave_no_time_ends_with_its_own_and_says_so(
    make_client: MakeClient, write_guard: WriteGuard, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, gate, compute = threading.Event(), threading.Event(), RagEngine.answer

    def held(engine: RagEngine, *given: Any) -> Any:
        begun.set()
        gate.wait()
        return compute(engine, *given)

    monkeypatch.setattr(RagEngine, "answer", held)
    guard = write_guard({"question": "where is nepal ?"}, {"question": PERU})
    client = make_client(guard=guard, guard_s=0.1, residents=1, workers=1)
    with ThreadPoolExecutor(1) as reader:
        reading = reader.submit(answer, client)
        begun.wait()
        try:
            problem = swap(client).json()
        finally:
            gate.set()
        assert reading.result()["index"]["version"] == "tiny-2016"
    assert (problem["code"], problem["n_broken"]) == ("guard_failed", 0)
    assert "The answers that it got took 0 s: readers' questions go first." in problem["detail"]
    assert history(client)[0]["detail"] == "0 of 2 guarded answers break, 2 were not asked in time"
    assert last_check(client) == {"version": "tiny-2018", "questions": 2, "broken": 0, "left": 2}


def test_a_file_that_is_no_guard_any_more_is_read_at_the_next_swap(
    make_client: MakeClient, broken_guard: Path, write_guard: WriteGuard
) -> None:
    client = make_client(guard=broken_guard, residents=1)
    assert swap(client).status_code == 409
    write_guard({"question": PERU})
    assert swap(client).status_code == 200


def test_readers_notice_nothing_of_a_guard_and_answers_never_mix_versions(
    serve: Serve, write_guard: WriteGuard
) -> None:
    """Two readers without a pause fill the service with its one thread: none fails, and the check comes to its end.

    On a slow machine the check may begin only once their last questions are answered.
    """
    guard = write_guard(*({"question": f"{PERU} {number}", "must_refuse": number % 2 == 1} for number in range(6)))
    address = serve(residents=1, guard=guard, workers=1, max_queue=1, max_batch=1)
    failed: list[object] = []
    ended = threading.Event()

    def read() -> None:
        with httpx.Client(base_url=address, timeout=None) as client:
            for _ in range(MOST_READ):
                if ended.is_set():
                    return
                response = client.post("/answer", json={"question": PERU, "n_docs": 4, "max_new_tokens": 4})
                if response.status_code != 200 or response.json()["index"]["version"] != "tiny-2016":
                    failed.append(response.text)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for one in readers:
        one.start()
    try:
        with httpx.Client(base_url=address, timeout=None) as client:
            problem = swap(client).json()
    finally:
        ended.set()
        for one in readers:
            one.join()
    assert (problem["code"], problem["n_broken"]) == ("guard_failed", 3)
    assert failed == []


def test_a_replica_follows_no_version_that_breaks_an_answer_unless_it_was_forced(
    serve: Serve, broken_guard: Path, indexes_folder: Path
) -> None:
    address = serve(residents=1, guard=broken_guard, follow_s=0.02)
    other = serve(residents=1, guard=broken_guard, follow_s=0.02)
    store = IndexStore(indexes_folder)
    publish_tiny(store, "tiny-2018", as_version="tiny-2020", snapshot_date="2020-12-20")
    patient = partial(httpx.Client, timeout=PATIENCE_S)
    with patient(base_url=address) as client, patient(base_url=other) as follower:

        def following(one: httpx.Client) -> Mapping[str, Any]:
            found: Mapping[str, Any] = one.get("/readyz").json()["following"]
            return found

        store.set_current("tiny-2018")
        for one in (client, follower):
            until(lambda one=one: following(one)["code"] == "guard_failed")
            assert one.get("/index").json()["live"]["version"] == "tiny-2016"
        assert client.post("/index/swap", json={"version": "tiny-2020", "force": True}, headers=ADMIN).is_success
        until(lambda: follower.get("/index").json()["live"]["version"] == "tiny-2020")
        until(lambda: following(follower)["ok"])
        until(lambda: following(client)["ok"])
