"""The composition root: `create_app` makes the ASGI application, its lifespan loads what it serves with."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from service import __version__
from service.api import indexes, openapi, operations, questions
from service.api.composition import close_services, open_services
from service.api.middleware import RequestContext
from service.api.problems import handle_error
from service.application.telemetry import Telemetry
from service.errors import OpenbookError
from service.rag.engine import RagEngine
from service.settings import Settings

WEB = Path(__file__).parent / "web"

PAGE_HEADERS = {
    "content-security-policy": "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}
DESCRIPTION = (
    "Questions answered by retrieval-augmented generation. Every answer names the index version that it came from, "
    "the passages that it used and the posterior of each passage at each token."
)


def create_app(settings: Settings, *, engine: RagEngine | None = None) -> FastAPI:
    """The application. Nothing is loaded before its lifespan begins; an `engine` that is given is not loaded again.

    A lifespan that cannot begin raises the OpenbookError that says why, and keeps it in `app.state.startup_failure`.
    """
    telemetry = Telemetry()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            services = await asyncio.to_thread(open_services, settings, telemetry, engine)
        except OpenbookError as error:
            app.state.startup_failure = error
            raise
        app.state.services = services
        try:
            yield
        finally:
            await close_services(services)

    app = FastAPI(
        title="Openbook",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.settings = settings
    app.state.telemetry = telemetry
    app.state.max_body_bytes = settings.max_body_bytes
    for calls in (questions, indexes, operations):
        app.include_router(calls.router)
    _add_pages(app)
    for error in (OpenbookError, HTTPException, RequestValidationError):
        app.add_exception_handler(error, handle_error)
    app.add_middleware(RequestContext, telemetry=telemetry)
    document = openapi.document(app, settings)
    app.openapi = lambda: document  # type: ignore[method-assign]
    return app


def _add_pages(app: FastAPI) -> None:
    """Whole pages of our own files: no other host is asked for anything."""

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(WEB / "index.html", headers=PAGE_HEADERS)

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(WEB / "docs.html", headers=PAGE_HEADERS)

    app.mount("/static", StaticFiles(directory=WEB), name="static")
