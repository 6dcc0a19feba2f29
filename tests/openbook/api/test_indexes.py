"""What an operator does over HTTP: swaps without waiting, rollback, loading, the history, and who asked."""

import base64
import shutil
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from openbook.settings import Settings
from openbook.storage.index_store import IndexStore
from tests.fixtures.indexes import publish_tiny
from tests.openbook.api.conftest import ADMIN, TOKEN, MakeClient, Serve, SlowSearch, ended_with, get, post
from tests.waiting import PATIENCE_S, until

QUESTION = {"question": "who is the president of peru ?"}
LEFT_ALONE = {"wait": False}


def progress(server: str) -> dict[str, Any]:
    found: dict[str, Any] = get(f"{server}/index/swap").raise_for_status().json()
    return found


def live(server: str) -> str:
    version: str = get(f"{server}/index").json()["live"]["version"]
    return version


def history(server: str, query: str = "") -> list[dict[str, Any]]:
    response = get(f"{server}/index/history{query}", headers=ADMIN).raise_for_status()
    swaps: list[dict[str, Any]] = response.json()["swaps"]
    return swaps


def test_a_swap_that_nobody_waits_for_tells_how_it_goes_and_ends(serve: Serve) -> None:
    server = serve(residents=1)
    unknown = ("version", "previous", "policy", "stage", "fraction", "started_at", "code")
    assert progress(server) == {"state": "idle", "seconds": {}, "detail": "", **dict.fromkeys(unknown)}
    response = post(f"{server}/index/swap", json={"version": "tiny-2018", **LEFT_ALONE}, headers=ADMIN)
    assert (response.status_code, response.headers["location"]) == (202, "/index/swap")
    begun = response.json()
    assert (begun["version"], begun["previous"], begun["policy"]) == ("tiny-2018", "tiny-2016", "availability")
    until(lambda: progress(server)["state"] != "running")
    ended = progress(server)
    assert (ended["state"], ended["stage"], ended["code"]) == ("done", None, None)
    assert list(ended["seconds"]) == ["verify", "open", "warm", "flip", "current", "total"]
    assert ended["started_at"] == begun["started_at"]
    assert live(server) == "tiny-2018"


def test_a_swap_that_nobody_waits_for_says_why_it_failed(serve: Serve, settings: Settings) -> None:
    server = serve(residents=1)
    (Path(settings.indexes) / "tiny-2018" / "passages.arrow").write_bytes(b"")
    body = {"version": "tiny-2018", **LEFT_ALONE}
    assert post(f"{server}/index/swap", json=body, headers=ADMIN).status_code == 202
    until(lambda: progress(server)["state"] != "running")
    ended = progress(server)
    assert (ended["state"], ended["stage"], ended["code"]) == ("failed", "verify", "index_corrupt")
    assert ended["detail"].startswith("'passages.arrow' of index 'tiny-2018' has 0 bytes where")
    assert live(server) == "tiny-2016"


def test_while_the_old_index_drains_the_stage_and_its_readers_are_told(serve: Serve, slow_search: SlowSearch) -> None:
    server = serve(residents=1)
    client = slow_search.ask(server, QUESTION)
    slow_search.wait(1)
    body = {"version": "tiny-2018", "policy": "resource", **LEFT_ALONE}
    assert post(f"{server}/index/swap", json=body, headers=ADMIN).status_code == 202
    until(lambda: progress(server)["stage"] == "drain")
    now = get(f"{server}/index").json()
    assert now["live"] is None
    assert [(one["version"], one["retiring"], one["leases"]) for one in now["resident"]] == [("tiny-2016", True, 1)]
    # at once, although the one thread is taken
    for refused in (post(f"{server}/answer", json=QUESTION), get(f"{server}/readyz")):
        assert (*ended_with(refused), refused.headers["retry-after"]) == (503, "not_ready", "5")
    for call, second in (("swap", {"version": "tiny-2016"}), ("rollback", {}), ("load", {"version": "tiny-2016"})):
        assert ended_with(post(f"{server}/index/{call}", json=second, headers=ADMIN)) == (409, "swap_in_progress")
    slow_search.go_on.set()
    until(lambda: progress(server)["state"] == "done")
    assert client.recv(12) == b"HTTP/1.1 200"
    client.close()
    assert live(server) == "tiny-2018"


def test_a_rollback_without_a_body_is_one_with_all_defaults(serve: Serve) -> None:
    server = serve()
    assert post(f"{server}/index/swap", json={"version": "tiny-2018"}, headers=ADMIN).status_code == 200
    response = httpx.post(f"{server}/index/rollback", headers=ADMIN, timeout=PATIENCE_S)
    assert (response.status_code, response.json()["version"]) == (200, "tiny-2016")
    # what has to name a version needs a body, and what is sent must be JSON
    assert httpx.post(f"{server}/index/swap", headers=ADMIN, timeout=PATIENCE_S).status_code == 415
    assert httpx.post(f"{server}/index/rollback", headers=ADMIN, content=b"{", timeout=PATIENCE_S).status_code == 415


def test_a_version_that_was_loaded_can_be_named_and_the_live_one_stays(serve: Serve, settings: Settings) -> None:
    shutil.rmtree(Path(settings.indexes) / "tiny-2018")
    server = serve()
    pinned = {**QUESTION, "index": "tiny-2018"}
    assert ended_with(post(f"{server}/answer", json=pinned)) == (404, "unknown_index")
    publish_tiny(IndexStore(Path(settings.indexes)), "tiny-2018")
    assert ended_with(post(f"{server}/answer", json=pinned)) == (409, "index_not_resident")
    response = post(f"{server}/index/load", json={"version": "tiny-2018", "verify": "checksum"}, headers=ADMIN)
    assert response.status_code == 200
    assert response.json()["version"] == "tiny-2018"
    assert list(response.json()["seconds"]) == ["verify", "open", "warm", "total"]
    named = {"version": "tiny-2018", "generation": 0, "snapshot_date": "2018-12-20"}
    assert post(f"{server}/answer", json=pinned).json()["index"] == named
    assert live(server) == "tiny-2016"
    # again, left alone: what is open stays open
    body = {"version": "tiny-2018", **LEFT_ALONE}
    assert post(f"{server}/index/load", json=body, headers=ADMIN).status_code == 202
    until(lambda: progress(server)["state"] == "done")
    assert progress(server)["policy"] == "load"


def test_what_cannot_be_loaded_is_refused_with_its_code(serve: Serve, settings: Settings) -> None:
    def load(server: str, version: str) -> tuple[int, str]:
        return ended_with(post(f"{server}/index/load", json={"version": version}, headers=ADMIN))

    alone = serve(residents=1)
    assert load(alone, "tiny-2018") == (507, "index_too_large")
    assert load(alone, "wiki-1999") == (404, "unknown_index")
    publish_tiny(IndexStore(Path(settings.indexes)), "tiny-2018", encoder_fingerprint="another", replace=True)
    assert load(serve(residents=2), "tiny-2018") == (409, "index_incompatible")


def test_the_history_tells_who_did_what_newest_first_and_survives_a_restart(serve: Serve) -> None:
    server = serve()
    named = {**ADMIN, "x-openbook-actor": "jos\u00e9 of the night shift".encode()}
    assert post(f"{server}/index/swap", json={"version": "tiny-2018"}, headers=named).status_code == 200
    assert post(f"{server}/index/swap", json={"version": "wiki-1999"}, headers=ADMIN).status_code == 404
    for told in (history(server), history(serve())):
        refused, swapped = told
        assert {name: swapped[name] for name in swapped if name not in ("time", "replica", "seconds")} == {
            "actor": "jos\u00e9 of the night shift",
            "previous": "tiny-2016",
            "version": "tiny-2018",
            "policy": "availability",
            "outcome": "ok",
            "generation": 1,
            "detail": "",
        }
        assert swapped["seconds"] > 0
        told_of = tuple(refused[name] for name in ("actor", "version", "outcome", "generation"))
        assert told_of == ("127.0.0.1", "wiki-1999", "unknown_index", None)
        assert refused["time"] >= swapped["time"]
    assert [one["version"] for one in history(server, "?limit=1")] == ["wiki-1999"]


@pytest.mark.parametrize(
    ("query", "field"),
    [*((f"limit={limit}", "limit") for limit in ("0", "1001", "-1", "all", "")), ("limit=1&since=yesterday", "since")],
)
def test_what_is_asked_of_the_history_is_bounded_and_known(reader: TestClient, query: str, field: str) -> None:
    response = reader.get(f"/index/history?{query}", headers=ADMIN)
    assert ended_with(response) == (422, "invalid_request")
    assert [error["field"] for error in response.json()["errors"]] == [field]


def test_a_name_that_the_history_could_not_show_is_refused(server: str) -> None:
    kept = "must be a name: the history keeps this for those who give none"
    addresses = ("127.0.0.1", "192.0.2.1:80", "[::1]", "fe80::1%x")
    names: list[tuple[Any, str]] = [
        ("x" * 65, "must have at most 64 characters"),
        (b"caf\xe9", "is not sent as UTF-8"),
        ("a\u202eb".encode(), "holds a character that cannot be printed"),
        *((name, kept) for name in ("current", "Current", "unknown", *addresses)),
    ]
    for name, reason in names:
        for call in ("swap", "rollback", "load"):
            body = {} if call == "rollback" else {"version": "tiny-2018"}
            response = post(f"{server}/index/{call}", json=body, headers={**ADMIN, "x-openbook-actor": name})
            assert ended_with(response) == (422, "invalid_request")
            assert response.json()["errors"] == [{"field": "x-openbook-actor", "reason": reason}]
    assert history(server) == []


@pytest.mark.parametrize("call", ["swap", "rollback", "load", "history"])
def test_administration_needs_the_token(reader: TestClient, make_client: MakeClient, call: str) -> None:
    def ask(client: TestClient, headers: Any) -> httpx.Response:
        body = None if call == "history" else {} if call == "rollback" else {"version": "tiny-2018"}
        return client.request("GET" if body is None else "POST", f"/index/{call}", json=body, headers=headers)

    for headers, what in (
        ({}, "missing"),
        ({"authorization": "Bearer "}, "missing"),
        ({"authorization": "Basic " + base64.b64encode(TOKEN.encode()).decode()}, "missing"),
        ({"x-admin-token": TOKEN}, "missing"),
        ({"authorization": "Bearer guess"}, "wrong"),
        ({"authorization": f"Bearer {TOKEN}x"}, "wrong"),
        ({b"authorization": "Bearer schl\u00fcssel".encode()}, "wrong"),
    ):
        response = ask(reader, headers)
        assert ended_with(response) == (401, "unauthorized")
        assert response.json()["detail"].endswith(f"the token was {what}.")
        assert response.headers["www-authenticate"] == 'Bearer realm="openbook"'
    for off in (None, SecretStr("")):
        assert ended_with(ask(make_client(admin_token=off), ADMIN)) == (403, "admin_disabled")
    assert reader.get("/index").json()["live"]["generation"] == 0


@pytest.mark.parametrize("token", ["schl\u00fcssel", "caf\udce9"])
def test_a_token_beyond_ascii_opens_over_a_socket(serve: Serve, token: str) -> None:
    """The last one is a byte of the environment that is not UTF-8."""
    server = serve(admin_token=SecretStr(token))
    headers = {b"authorization": f"Bearer {token}".encode(errors="surrogateescape")}
    assert get(f"{server}/index/history", headers=headers).status_code == 200
    refused = get(f"{server}/index/history", headers={b"authorization": b"Bearer schl\xfcssel"})
    assert refused.json()["detail"].endswith("the token was not sent as UTF-8.")


def test_a_service_follows_current_and_says_so_where_it_cannot(serve: Serve, settings: Settings) -> None:
    server = serve(follow_s=0.05, residents=1)
    store = IndexStore(Path(settings.indexes))

    def following() -> dict[str, Any]:
        found: dict[str, Any] = get(f"{server}/readyz").raise_for_status().json()["following"]
        return found

    assert following()["ok"]
    publish_tiny(store, "tiny-2018", encoder_fingerprint="another", replace=True)
    store.set_current("tiny-2018")
    until(lambda: not following()["ok"])
    problem = following()
    assert (problem["wanted"], problem["code"]) == ("tiny-2018", "index_incompatible")
    assert "another" in problem["detail"]
    assert problem["since"].endswith("+00:00")
    assert live(server) == "tiny-2016"
    publish_tiny(store, "tiny-2018", replace=True)
    store.set_current("tiny-2018")
    until(lambda: following()["ok"])
    assert live(server) == "tiny-2018"


def test_a_service_that_does_not_follow_says_nothing_of_it(reader: TestClient) -> None:
    assert reader.get("/readyz").json()["following"] is None
