"""Names, sites and proxies: which of them the service believes, in a client of this process and over real sockets."""

import pytest
from starlette.testclient import TestClient

from openbook.api.access import MOST_ATTEMPTS
from openbook.api.server import server_config
from openbook.errors import SettingInvalid
from openbook.settings import Settings
from tests.openbook.api.conftest import ADMIN, MakeClient, Serve, ended_with, get, post

WRONG = {"authorization": "Bearer open says me"}
SWAP = {"version": "tiny-2018"}
REBOUND = "elsewhere.example:8000"


@pytest.mark.parametrize(
    ("host", "allowed_hosts"),
    [
        *((host, "") for host in ("localhost", "LOCALHOST.:8000", "127.0.0.1", "10.2.3.4:8000", "[::1]:8000", "")),
        *((host, "book, book.default.svc,") for host in ("book:8000", "Book.default.svc", "192.0.2.1:80")),
        (REBOUND, "*"),
    ],
)
def test_addresses_and_known_names_are_answered(make_client: MakeClient, host: str, allowed_hosts: str) -> None:
    client = make_client(allowed_hosts=allowed_hosts)
    assert client.get("/healthz", headers={"host": host}).status_code == 200
    headers = {"host": host} | ({"origin": f"http://{host}", "sec-fetch-site": "same-origin"} if host else {})
    assert client.post("/retrieve", json={"question": "who ?"}, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/", "/healthz", "/metrics", "/index", "/nowhere"])
@pytest.mark.parametrize("host", [REBOUND, "localhost.elsewhere.example", "127.0.0.1.elsewhere.example", "x:80:80"])
def test_a_name_that_is_not_known_is_refused(reader: TestClient, host: str, path: str) -> None:
    response = reader.get(path, headers={"host": host})
    assert ended_with(response) == (421, "host_refused")
    name = repr(host)
    assert response.json()["detail"] == (
        f"The service does not answer to the name {name}. Call it by its address, or add the name to the setting "
        "OPENBOOK_ALLOWED_HOSTS."
    )


def test_a_page_that_rebinds_its_name_cannot_swap(reader: TestClient) -> None:
    headers = {**ADMIN, "host": REBOUND, "origin": f"http://{REBOUND}", "sec-fetch-site": "same-origin"}
    assert ended_with(reader.post("/index/swap", json=SWAP, headers=headers)) == (421, "host_refused")
    assert reader.get("/index").json()["live"]["generation"] == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://elsewhere.example"},
        {"origin": "http://localhost:3000"},
        {"origin": "null"},
        {"origin": "null", "host": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "cross-site", "host": "book"},
    ],
)
def test_a_foreign_page_cannot_post(make_client: MakeClient, headers: dict[str, str]) -> None:
    # whatever names the service has, a page under another one is foreign
    client = make_client(allowed_hosts="*, book")
    response = client.post("/index/swap", json=SWAP, headers={**ADMIN, **headers})
    assert ended_with(response) == (403, "origin_refused")
    # the advice holds: test_origins.py follows its first half, the next test the second
    detail = response.json()["detail"]
    assert "To let that site ask, add its origin to the setting OPENBOOK_ALLOWED_ORIGINS." in detail
    assert "If this is the service's own page behind a proxy, let the proxy keep the header Host" in detail
    assert ended_with(client.get("/index/history", headers={**ADMIN, **headers})) == (403, "origin_refused")
    assert client.get("/index", headers=headers).json()["live"]["generation"] == 0


def test_a_page_of_an_allowed_host_may_post_behind_a_proxy_that_renames_the_host(make_client: MakeClient) -> None:
    headers = {**ADMIN, "host": "openbook:8000", "origin": "https://book.example", "sec-fetch-site": "cross-site"}
    client = make_client(allowed_hosts="openbook,book.example")
    assert client.post("/index/swap", json=SWAP, headers=headers).status_code == 200


def test_a_client_cannot_forge_its_address(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")
    server = serve()
    for turn in range(2 * MOST_ATTEMPTS):
        forged = {**WRONG, "x-forwarded-for": f"192.0.2.{turn}"}
        assert get(f"{server}/index/history", headers=forged).status_code == (401 if turn < MOST_ATTEMPTS else 429)


def test_a_trusted_proxy_names_the_client(serve: Serve) -> None:
    server = serve(trusted_proxies="10.0.0.0/8, 127.0.0.1")
    for forwarded, actor in [("192.0.2.7", "192.0.2.7"), ("x" * 8000, "unknown"), (f"::1%{'x' * 8000}", "::1")]:
        headers = {**ADMIN, "x-forwarded-for": forwarded}
        assert post(f"{server}/index/swap", json=SWAP, headers=headers).status_code == 200
        (swap,) = get(f"{server}/index/history?limit=1", headers=ADMIN).json()["swaps"]
        assert swap["actor"] == actor
    for turn in range(MOST_ATTEMPTS + 1):
        guess = {**WRONG, "x-forwarded-for": f"192.0.2.{turn}"}
        assert get(f"{server}/index/history", headers=guess).status_code == 401


def test_a_proxy_must_be_an_address_or_a_network(client: TestClient, settings: Settings) -> None:
    for wrong in ("*", "proxy", "10.0.0.1/8"):
        with pytest.raises(SettingInvalid, match=r"^OPENBOOK_TRUSTED_PROXIES: "):
            server_config(client.app, settings.model_copy(update={"trusted_proxies": wrong}))  # type: ignore[arg-type]
