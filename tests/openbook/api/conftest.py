"""A client in this process, and a real server on loopback for what only a socket can show."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.testclient import TestClient

from openbook.api import body
from openbook.api import server as api_server
from openbook.api.access import FailedAttempts
from openbook.api.app import create_app
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.rag.retriever import DenseRetriever
from openbook.settings import Settings, settings_class
from tests.waiting import HELD_S, PATIENCE_S

Serve = Callable[..., str]
MakeClient = Callable[..., TestClient]

TOKEN = "open sesame"
ADMIN = {"authorization": f"Bearer {TOKEN}"}

PERU = "who is the president of peru ?"
# Small questions that name no version, and those with a comparison.
PINNED: dict[str, dict[str, Any]] = {
    "/answer": {"question": PERU, "n_docs": 4, "num_beams": 1, "max_new_tokens": 4},
    "/score": {"question": PERU, "n_docs": 4, "targets": ["peru", "the sea"]},
    "/retrieve": {"question": PERU, "n_docs": 4},
}
BODIES = PINNED | {"/compare": PINNED["/answer"] | {"versions": ["tiny-2016", "tiny-2018"]}}


# A test with this mark is made with a generator that has an encoder, and, among the slow ones, with a causal one.
CAUSAL = pytest.param("tiny_causal_checkpoint", marks=pytest.mark.slow)
BOTH_KINDS = pytest.mark.parametrize("engine", ["tiny_checkpoint", CAUSAL], indirect=True)


@pytest.fixture(scope="session")
def engine(tiny_checkpoint: Path, request: pytest.FixtureRequest) -> RagEngine:
    named = getattr(request, "param", "tiny_checkpoint")
    return RagEngine(load_checkpoint(request.getfixturevalue(named), bare=True))


def settings_of(indexes: Path, checkpoint: Path) -> Settings:
    return settings_class()(indexes=indexes, checkpoint=str(checkpoint), admin_token=SecretStr(TOKEN), port=0)


@pytest.fixture
def settings(indexes_folder: Path, tiny_checkpoint: Path) -> Settings:
    return settings_of(indexes_folder, tiny_checkpoint)


@pytest.fixture
def app(settings: Settings, engine: RagEngine) -> FastAPI:
    return create_app(settings, engine=engine)


def client_of(app: FastAPI) -> TestClient:
    return TestClient(app, base_url="http://localhost", client=("127.0.0.1", 50000))


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with client_of(app) as client:
        yield client


@pytest.fixture(scope="session")
def reader(tiny_indexes: Path, tiny_checkpoint: Path, engine: RagEngine) -> Iterator[TestClient]:
    """A client of one service, for all tests that change nothing in it."""
    settings = Settings(
        indexes=tiny_indexes, checkpoint=str(tiny_checkpoint), admin_token=SecretStr(TOKEN), follow_s=0.0
    )
    app = create_app(settings, engine=engine)
    app.state.attempts = FailedAttempts(most=10**9)
    with client_of(app) as client:
        yield client


@pytest.fixture
def make_client(settings: Settings, engine: RagEngine) -> Iterator[Callable[..., TestClient]]:
    """A client of a service with some settings changed."""
    with ExitStack() as stack:

        def make(**changed: object) -> TestClient:
            app = create_app(settings.model_copy(update=changed), engine=engine)
            return stack.enter_context(client_of(app))

        yield make


@contextmanager
def serving(app: FastAPI, settings: Settings) -> Iterator[str]:
    """The address of a real server that runs in a thread for the length of a `with` block."""
    with api_server.serving(app, settings) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def server(app: FastAPI, settings: Settings) -> Iterator[str]:
    with serving(app, settings) as address:
        yield address


@pytest.fixture
def serve(settings: Settings, engine: RagEngine) -> Iterator[Serve]:
    """The address of a real server with some settings changed; each has the folder of `settings`."""
    with ExitStack() as stack:

        def serve(**changed: object) -> str:
            own = settings.model_copy(update=changed)
            return stack.enter_context(serving(create_app(own, engine=engine), own))

        yield serve


@contextmanager
def hasty(app: FastAPI, settings: Settings, seconds: float, body_s: float | None = None) -> Iterator[str]:
    """A real server that waits so many seconds for a head or a body, and lets any number of tokens be guessed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api_server.BoundedProtocol, "head_timeout_s", seconds)
        patch.setattr(body, "BODY_TIMEOUT_S", body_s or seconds)
        app.state.attempts = FailedAttempts(most=10**9)
        with serving(app, settings) as address:
            yield address


@pytest.fixture
def hasty_after(app: FastAPI, settings: Settings) -> Iterator[Callable[..., str]]:
    with ExitStack() as stack:
        yield lambda *seconds, **body_s: stack.enter_context(hasty(app, settings, *seconds, **body_s))


def without_seconds(body: dict[str, Any]) -> dict[str, Any]:
    """An answer but for how long it took."""
    return {name: value for name, value in body.items() if name != "seconds"}


def ended_with(response: httpx.Response) -> tuple[int, str]:
    """Its status, and the code of its problem."""
    return response.status_code, response.json()["code"]


def refused(response: httpx.Response) -> tuple[int, str, list[tuple[str, str]]]:
    """Its status, the code of its problem, and the field and reason of each error."""
    body = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert body["status"] == response.status_code
    return response.status_code, body["code"], [(one["field"], one["reason"]) for one in body.get("errors", [])]


def get(url: str, *, headers: Any = None) -> httpx.Response:
    # patient: the machine that runs the tests may be busy with other things; and no certificates are read for http
    return httpx.get(url, headers=headers, timeout=PATIENCE_S, verify=False)


def post(url: str, *, json: object, headers: Any = None) -> httpx.Response:
    return httpx.post(url, json=json, headers=headers, timeout=PATIENCE_S, verify=False)


class SlowSearch:
    """Holds the search of every question until the test sets `go_on`, and keeps the clients that `ask`.

    What a test looks for is not over before the test looks.

    At the end of a `with` block, and of the test, every search goes on and every client hangs up: a test that fails
    must not keep its server from ending, nor leave a socket to the next.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self._clients: list[socket.socket] = []
        search = DenseRetriever.search

        def slow(retriever: DenseRetriever, *arguments: Any) -> object:
            self.begun.release()
            self.go_on.wait(HELD_S)
            return search(retriever, *arguments)

        monkeypatch.setattr(DenseRetriever, "search", slow)

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=PATIENCE_S)

    def ask(
        self, server: str, body: dict[str, object], path: str = "/answer", *, after: bytes = b"", **headers: object
    ) -> socket.socket:
        """A client that has asked, has sent `after` behind its question, and reads nothing."""
        client = connect(server)
        self._clients.append(client)
        content = json.dumps(body).encode()
        client.sendall(head(path, content_length=len(content), **headers) + content + after)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.go_on.set()
        for client in self._clients:
            client.close()


@pytest.fixture
def slow_search(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowSearch]:
    with SlowSearch(monkeypatch) as slow_search:
        yield slow_search


def connect(server: str) -> socket.socket:
    host, _, port = server.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def head(path: str = "/answer", **headers: object) -> bytes:
    """The head of a question, or of another call, with these headers."""
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{lines}\r\n".encode()


def received(client: socket.socket) -> bytes:
    """All until the other side closes; `timeout` where it does not."""
    return b"".join(iter(lambda: client.recv(65_536), b""))
