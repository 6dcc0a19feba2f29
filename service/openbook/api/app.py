"""`create_app` makes the ASGI application; its lifespan loads what it serves with."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from openbook import __version__
from openbook.api import indexes, openapi, operations, passages, questions
from openbook.api.access import FailedAttempts
from openbook.api.calls import add_routes
from openbook.api.composition import end_work, open_services
from openbook.api.hosts import AllowedHosts
from openbook.api.middleware import REQUEST_ID, RequestContext
from openbook.api.page import page_router
from openbook.api.problems import handle_error
from openbook.api.tracing import traces_to
from openbook.api.writing import Writer
from openbook.application.telemetry import Telemetry
from openbook.errors import OpenbookError
from openbook.extensions import MIDDLEWARE, extensions
from openbook.rag.engine import RagEngine
from openbook.settings import Settings

# Bytes of a response to a question, a stream included.
MAX_RESPONSE = 8 << 20
DESCRIPTION = (
    "Questions answered by retrieval-augmented generation. Every answer names the index version that it came from, "
    "the passages that it used and the posterior of each passage at each token."
)


def create_app(settings: Settings, *, engine: RagEngine | None = None) -> FastAPI:
    """The application. Nothing is loaded before its lifespan begins; an `engine` that is given is not loaded again.

    Raises what a plug-in's middleware raises. A lifespan that cannot begin raises the OpenbookError that says why, and
    keeps it in `app.state.startup_failure`.
    """
    telemetry = Telemetry()
    traces = traces_to(settings.traces_url)
    if traces is not None:
        telemetry.on_swap(traces.swap)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            services = await asyncio.to_thread(open_services, settings, telemetry, engine, at_once=True)
        except OpenbookError as error:
            app.state.startup_failure = error
            raise
        app.state.services = services
        app.state.writer = writer = Writer(MAX_RESPONSE)
        # once, whether the server or the end of the lifespan calls it first
        end = cache(lambda: asyncio.create_task(end_work(services)))
        app.state.end_work = end
        try:
            yield
        finally:
            await end()
            services.live.close()
            writer.close()
            if traces is not None:
                await asyncio.to_thread(traces.close)

    app = FastAPI(
        title="Openbook",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # FastAPI's own is on wherever a provider is installed, and records what clients send
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state.settings = settings
    app.state.telemetry = telemetry
    app.state.attempts = FailedAttempts()
    app.include_router(questions.questions_router())
    for calls in (passages, indexes, operations):
        app.include_router(calls.router)
    app.include_router(page_router())
    add_routes(app)
    for error in (OpenbookError, HTTPException, RequestValidationError):
        app.add_exception_handler(error, handle_error)
    for found in extensions(MIDDLEWARE).values():
        middleware = found.load()(settings, telemetry)
        if middleware is not None:
            app.add_middleware(middleware)
    app.state.hosts = hosts = AllowedHosts(settings)
    if hosts.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=hosts.origins,
            allow_methods=("GET", "POST"),
            allow_headers=("*",),
            # a public site may ask a service of the reader's own network
            allow_private_network=True,
            expose_headers=(REQUEST_ID, "retry-after"),
        )
    # the last one added is the outermost
    app.add_middleware(RequestContext, telemetry=telemetry, hosts=hosts, traces=traces)
    # takes half a second: made for the first reader, and in a thread, so that no other call waits
    document = cache(partial(openapi.document, app, settings))
    app.openapi = document  # type: ignore[method-assign]
    app.add_route("/openapi.json", lambda _: JSONResponse(document()), include_in_schema=False)
    return app
