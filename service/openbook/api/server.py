"""Serving: uvicorn with our logging, our limits on connections and our way to end."""

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from openbook.api import composition
from openbook.api.app import create_app
from openbook.api.hosts import names_in
from openbook.api.logs import JsonFormatter, configure_logging
from openbook.api.middleware import MAX_HEAD_BYTES
from openbook.errors import OpenbookError, SettingInvalid
from openbook.settings import Settings

# From the connection, or from the last response, to the end of the next head.
HEAD_TIMEOUT_S = 30.0
# Connections that a client keeps open without asking anything.
KEEP_ALIVE_S = 30
# A client that takes nothing for so long of what the system cannot hold is gone.
UNREAD_TIMEOUT_S = 30.0
# Of what a client sends while its request runs: more than a whole request of the usual largest size.
MAX_AHEAD_BYTES = 131_072
# After the end of the grace: a question ends between two steps of its computation.
LAST_STEP_S = 2.0
LOOK_EVERY_S = 0.01


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol with limits on the time to the next whole head, on the time in which a client reads nothing,
    and on what comes ahead of its turn.

    uvicorn's own limit on time ends with the first byte after a response, and there is none before the first request.
    uvicorn stops reading when bytes follow a request that is still running, and then never sees that the client has
    hung up. This protocol keeps such bytes until the response is complete, and closes a connection that sends too many.
    """

    head_timeout_s = HEAD_TIMEOUT_S
    unread_timeout_s = UNREAD_TIMEOUT_S
    _watch: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _ahead = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        # Whatever waits for the client pauses writing, and so has a limit on its time: a transport that is closed keeps
        # what waits without end.
        transport.set_write_buffer_limits(high=0)
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        if self._running() and not self.cycle.more_body:
            self._ahead += data
            if len(self._ahead) > MAX_AHEAD_BYTES:
                self.transport.close()
            return
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._ahead and not self._running() and not self.transport.is_closing():
            ahead, self._ahead = self._ahead, b""
            self.data_received(ahead)
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        # not `close`, which waits until all is read
        self._unread = self.loop.call_later(self.unread_timeout_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._end_unread()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._end_watch()
        self._end_unread()

    def _running(self) -> bool:
        cycle: Any = self.cycle
        return cycle is not None and not cycle.response_complete

    def _look(self) -> None:
        if self._running():
            # a request is running: its body and its answer have time limits of their own
            self._end_watch()
        elif self._watch is None and not self.transport.is_closing():
            self._watch = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _end_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


class Server(uvicorn.Server):
    """uvicorn's server, which also ends our work from the moment of the signal, and ends with status 0.

    uvicorn alone first waits for HTTP and then tells the application. This server stops a question or a swap after
    `composition.SHUTDOWN_S`, while the client can still be answered. LAST_STEP_S later uvicorn cancels the
    remaining requests, and `RequestContext` answers them.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.end_work()  # type: ignore[union-attr]
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with super().capture_signals():
            yield
            # uvicorn would raise them again, which ends a process with another status than 0
            self._captured_signals.clear()


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """No access log of uvicorn's own, no `server` header; limits on heads, on silence and on the end.

    Raises SettingInvalid for a proxy that is no address and no network.
    """
    proxies = names_in(settings.trusted_proxies)
    for proxy in proxies:
        try:
            ip_network(proxy)
        except ValueError as error:
            raise SettingInvalid(setting="OPENBOOK_TRUSTED_PROXIES", reason=str(error)) from error
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
        # both named: by default uvicorn believes X-Forwarded-For from loopback and from FORWARDED_ALLOW_IPS
        proxy_headers=bool(proxies),
        forwarded_allow_ips=list(proxies),
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=composition.SHUTDOWN_S + LAST_STEP_S,  # type: ignore[arg-type]
    )


def serve(settings: Settings) -> int:
    """Serve until a signal ends the process. Returns the exit status; the log says why it is not 0.

    Raises the OpenbookError that kept the service from starting.
    """
    configure_logging(settings.log_level)
    app = create_app(settings)
    try:
        Server(server_config(app, settings)).run()
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
    server = Server(server_config(app, settings))
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
def _access_log_to_nowhere() -> Iterator[None]:
    logger = logging.getLogger("openbook.access")
    before = logger.level, logger.propagate
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        handler = logging.StreamHandler(nowhere)
        handler.setFormatter(JsonFormatter())
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.setLevel(before[0])
            logger.propagate = before[1]
            logger.removeHandler(handler)
