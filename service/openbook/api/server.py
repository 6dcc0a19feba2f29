"""Serving as a process: uvicorn with our logging and our way to end."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from openbook.api.app import create_app
from openbook.api.composition import SHUTDOWN_S
from openbook.api.connections import MAX_HEAD_BYTES, BoundedProtocol
from openbook.api.logs import configure_logging
from openbook.errors import OpenbookError
from openbook.settings import Settings

# Connections that a client keeps open without asking anything.
KEEP_ALIVE_S = 30


def serve(settings: Settings) -> int:
    """Serve until told to end; 0 when that went well, else why not is in the log.

    Raises the OpenbookError for which it could not start.
    """
    configure_logging(settings.log_level, settings.log_format)
    app = create_app(settings)
    server = uvicorn.Server(server_config(app, settings))
    try:
        with _ending_is_no_error():
            server.run()
    except SystemExit as ended:
        # uvicorn's way to say that the lifespan, or the address, would not have it
        failure = getattr(app.state, "startup_failure", None)
        if isinstance(failure, OpenbookError):
            raise failure from None
        return ended.code if isinstance(ended.code, int) else 1
    return 0


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """No access log of uvicorn's own, no `server` header; limits on heads, on silence and on the end."""
    return uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        lifespan="on",
        # named: another one that happens to be installed has other limits
        http=BoundedProtocol,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(SHUTDOWN_S),
    )


@contextmanager
def _ending_is_no_error() -> Iterator[None]:
    """uvicorn ends in good order and then raises the signal again for whoever handled it before: that is us, and
    nothing is left to do, so that the process can end with status 0."""
    ends = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(one, lambda *_: None) for one in ends]
    try:
        yield
    finally:
        for one, handler in zip(ends, before, strict=True):
            signal.signal(one, handler)
