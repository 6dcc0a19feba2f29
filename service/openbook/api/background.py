"""A service inside this process, for whoever measures it: the same application, in a thread."""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from openbook.api.logs import JsonFormatter
from openbook.api.server import server_config
from openbook.errors import OpenbookError
from openbook.settings import Settings

LOOK_EVERY_S = 0.01


@contextmanager
def serving(app: FastAPI, settings: Settings) -> Iterator[int]:
    """Serve `app` for the length of a `with` block and give the port. Its log is written as always, to nowhere.

    Raises the OpenbookError for which it could not start.
    """
    server = uvicorn.Server(server_config(app, settings))
    thread = threading.Thread(target=server.run, daemon=True)
    with _log_to_nowhere():
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(LOOK_EVERY_S)
            failure = getattr(app.state, "startup_failure", None)
            if isinstance(failure, OpenbookError):
                raise failure
            yield server.servers[0].sockets[0].getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def _log_to_nowhere() -> Iterator[None]:
    """A line a request is a part of what a request costs."""
    logger = logging.getLogger("openbook.access")
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
        handler = logging.StreamHandler(nowhere)
        handler.setFormatter(JsonFormatter())
        before = logger.level, logger.propagate
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        try:
            yield
        finally:
            logger.level, logger.propagate = before
            logger.removeHandler(handler)
