"""Serving: uvicorn with our logging, our limits on connections and our way to end."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from openbook.api.app import create_app
from openbook.api.composition import SHUTDOWN_S
from openbook.api.logs import JsonFormatter, configure_logging
from openbook.api.middleware import MAX_HEAD_BYTES
from openbook.errors import OpenbookError
from openbook.settings import Settings

# From the connection, or from the last response, to the end of the next head.
HEAD_TIMEOUT_S = 30.0
# Connections that a client keeps open without asking anything.
KEEP_ALIVE_S = 30
LOOK_EVERY_S = 0.01


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with a limit on the time to the next whole head.

    uvicorn's own limit ends with the first byte after a response, and there is none before the first request.
    """

    head_timeout_s = HEAD_TIMEOUT_S
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_watch()

    def _look(self) -> None:
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            # a request is running: its body and its answer have time limits of their own
            self._end_watch()
        elif self._watch is None and not self.transport.is_closing():
            self._watch = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """No access log of uvicorn's own, no `server` header; limits on heads, on silence and on the end."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        lifespan="on",
        # named: another protocol that happens to be installed has other limits
        http=BoundedProtocol,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(SHUTDOWN_S),
    )


def serve(settings: Settings) -> int:
    """Serve until a signal ends the process. Returns the exit status; the log says why it is not 0.

    Raises the OpenbookError that kept the service from starting.
    """
    configure_logging(settings.log_level, settings.log_format)
    app = create_app(settings)
    server = uvicorn.Server(server_config(app, settings))
    try:
        with _ending_is_no_error():
            server.run()
    except SystemExit as ended:
        # uvicorn exits when the lifespan fails or the address is taken
        _raise_startup_failure(app)
        return ended.code if isinstance(ended.code, int) else 1
    return 0


@contextmanager
def serving(app: FastAPI, settings: Settings) -> Iterator[int]:
    """Serve `app` in a thread for the length of a `with` block and give the port.

    The access log is formatted as always, since that is a part of what a request costs, and dropped.
    Raises the OpenbookError that kept the service from starting.
    """
    server = uvicorn.Server(server_config(app, settings))
    thread = threading.Thread(target=server.run, daemon=True)
    with _access_log_to_nowhere():
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(LOOK_EVERY_S)
            _raise_startup_failure(app)
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def _raise_startup_failure(app: FastAPI) -> None:
    failure = getattr(app.state, "startup_failure", None)
    if isinstance(failure, OpenbookError):
        raise failure from None


@contextmanager
def _ending_is_no_error() -> Iterator[None]:
    """Let the process end with status 0: uvicorn ends in good order, and then raises the signal again for the handlers
    that it found, which are these."""
    ends = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(one, lambda *_: None) for one in ends]
    try:
        yield
    finally:
        for one, handler in zip(ends, before, strict=True):
            signal.signal(one, handler)


@contextmanager
def _access_log_to_nowhere() -> Iterator[None]:
    logger = logging.getLogger("openbook.access")
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        handler = logging.StreamHandler(nowhere)
        handler.setFormatter(JsonFormatter())
        before = logger.level, logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.setLevel(before[0])
            logger.propagate = before[1]
            logger.removeHandler(handler)
