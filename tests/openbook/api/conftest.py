"""A client in this process, and a real server on loopback for what only a socket can show."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.testclient import TestClient

from openbook.api.app import create_app
from openbook.api.server import server_config
from openbook.rag.checkpoint import load_checkpoint
from openbook.rag.engine import RagEngine
from openbook.rag.retriever import DenseRetriever
from openbook.settings import Settings

TOKEN = "open sesame"
ADMIN = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(scope="session")
def engine(tiny_checkpoint: Path) -> RagEngine:
    return RagEngine(load_checkpoint(tiny_checkpoint))


@pytest.fixture
def settings(indexes_folder: Path, tiny_checkpoint: Path) -> Settings:
    return Settings(
        indexes=indexes_folder, checkpoint=str(tiny_checkpoint), admin_token=SecretStr(TOKEN), port=0, max_docs=20
    )


@pytest.fixture
def app(settings: Settings, engine: RagEngine) -> FastAPI:
    return create_app(settings, engine=engine)


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    with TestClient(app) as client:
        yield client


@pytest.fixture
def make_client(settings: Settings, engine: RagEngine) -> Iterator[Callable[..., TestClient]]:
    """A client of a service with some settings changed."""
    with ExitStack() as stack:

        def make(**changed: object) -> TestClient:
            app = create_app(settings.model_copy(update=changed), engine=engine)
            return stack.enter_context(TestClient(app))

        yield make


@contextmanager
def serving(app: FastAPI, settings: Settings) -> Iterator[str]:
    """The address of a real server that runs in a thread for the length of a `with` block."""
    server = uvicorn.Server(server_config(app, settings))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        until = time.monotonic() + 30
        while not server.started and thread.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        assert server.started
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()


@pytest.fixture
def server(app: FastAPI, settings: Settings) -> Iterator[str]:
    with serving(app, settings) as address:
        yield address


def get(url: str, *, headers: Any = None) -> httpx.Response:
    # patient: the machine that runs the tests may be busy with other things
    return httpx.get(url, headers=headers, timeout=60)


def post(url: str, *, json: object, headers: Any = None) -> httpx.Response:
    return httpx.post(url, json=json, headers=headers, timeout=60)


class SlowSearch:
    """Lets the search of a question begin and end when the test says so, and keeps the clients that `ask`.

    At the end of a `with` block, and of the test, every search goes on and every client has hung up: a test that fails
    must not keep its server from ending, nor leave a socket to the next.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = threading.Semaphore(0)
        self.go_on = threading.Event()
        self._clients: list[socket.socket] = []
        search = DenseRetriever.search

        def slow(retriever: DenseRetriever, *arguments: Any) -> object:
            self.begun.release()
            self.go_on.wait(30)
            return search(retriever, *arguments)

        monkeypatch.setattr(DenseRetriever, "search", slow)

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self.begun.acquire(timeout=30)

    def ask(self, server: str, body: dict[str, object]) -> socket.socket:
        """A client that has asked and reads nothing."""
        self._clients.append(raw_request(server, body))
        return self._clients[-1]

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


def until(condition: Callable[[], object], limit_s: float = 60) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def raw_request(server: str, body: dict[str, object]) -> socket.socket:
    """A client that has asked and reads nothing."""
    host, _, port = server.removeprefix("http://").partition(":")
    content = json.dumps(body).encode()
    head = (
        f"POST /answer HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    client = socket.create_connection((host, int(port)), timeout=60)
    client.sendall(head.encode() + content)
    return client
