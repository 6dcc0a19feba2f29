"""A client in this process, and a real server on loopback for what only a socket can show."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI
from pydantic import SecretStr
from starlette.testclient import TestClient

from service.api.app import create_app
from service.api.server import server_config
from service.rag.checkpoint import load_checkpoint
from service.rag.engine import RagEngine
from service.settings import Settings

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
