"""Both clients under one face, a real service to ask, and a service that answers as a test tells it to."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from openbook.api.app import create_app
from openbook.rag.engine import RagEngine
from openbook.settings import Settings
from openbook_client import AsyncOpenbook, Openbook
from tests.openbook.api.conftest import TOKEN, app, engine, reader, server, serving, settings, slow_search

__all__ = ["TOKEN", "app", "engine", "reader", "server", "settings", "slow_search"]


class Both:
    """A client whose calls return in either kind: of AsyncOpenbook each call runs in an event loop until it ends."""

    def __init__(self, client: Openbook | AsyncOpenbook, runner: asyncio.Runner) -> None:
        self._client, self._runner = client, runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*arguments: object, **options: object) -> Any:
            made = method(*arguments, **options)
            return self._runner.run(made) if asyncio.iscoroutine(made) else made

        return call


@pytest.fixture(scope="package")
def library(tiny_indexes: Path, tiny_checkpoint: Path, engine: RagEngine) -> Iterator[str]:
    """The address of one service for all tests that change nothing in it. While it runs, the access log goes nowhere:
    so it ends with the tests of this folder, whichever this process runs next."""
    settings = Settings(
        indexes=tiny_indexes, checkpoint=str(tiny_checkpoint), admin_token=SecretStr(TOKEN), follow_s=0.0, port=0
    )
    with serving(create_app(settings, engine=engine), settings) as address:
        yield address


Connect = Callable[..., Both]


@pytest.fixture(params=[Openbook, AsyncOpenbook], ids=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Makes clients of one kind, and closes them."""
    with asyncio.Runner() as runner, ExitStack() as stack:

        def connect(url: str, **arguments: Any) -> Both:
            both = Both(request.param(url, **arguments), runner)
            stack.callback(both.close)
            return both

        yield connect


@dataclass(slots=True)
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass(slots=True)
class Scripted:
    """A service that gives these replies in turn, the last one for ever, and keeps what it was asked.

    A reply is (status, headers, body); None breaks the connection.
    """

    url: str = ""
    replies: list[tuple[int, dict[str, str], object] | None] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)

    def next_reply(self) -> tuple[int, dict[str, str], object] | None:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            script.asked.append(Asked(self.command, self.path, headers, json.loads(sent) if sent else None))
            reply = script.next_reply()
            if reply is None:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            status, headers, body = reply
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"content-length": str(len(content)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}"
    yield script
    server.shutdown()
    thread.join()
    server.server_close()
