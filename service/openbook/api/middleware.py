"""Around every request: its id, its headers, its line in the log, its count in the metrics, and any exception."""

import asyncio
import logging
import re
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, TypeVar

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openbook.api import problems
from openbook.api.hosts import AllowedHosts
from openbook.api.logs import FACTS, FOUND
from openbook.api.tracing import Traces
from openbook.application.admission import SHUTTING_DOWN
from openbook.application.telemetry import Telemetry
from openbook.errors import NoLiveIndex, OpenbookError

T = TypeVar("T")

# Request line and headers. Browsers send under two kilobytes, proxies add a few hundred bytes.
MAX_HEAD_BYTES = 16_384
# What a response tells a browser unless it says otherwise, as a page does: nothing in it is run, shown in a frame, read
# by another site's script or kept by a cache.
DEFAULTS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
REQUEST_ID = "x-request-id"
SANE_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
MAX_METHOD = 20
CLIENT_GONE = 499  # nginx's number; no client sees it
OK = "ok"
CANCELLED = "cancelled"
# Machines and open pages read these all the time: lines for them would hide the others, and the metrics count them.
PROBES = ("/healthz", "/health", "/readyz", "/metrics")
POLLED = (*PROBES, "/index", "/index/swap", "/static/{name}")
# h11 bounds a head that is not whole yet; a larger head that comes in one piece is refused here
HEAD_TOO_LARGE = problems.of_http(
    HTTPException(431, f"The address and headers have more than {MAX_HEAD_BYTES} bytes.", {"connection": "close"})
)

access = logging.getLogger("openbook.access")


class ClientGone(Exception):
    """The client hung up while its question was being answered."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The outermost middleware. Every request gets one response, one log line and one count, whatever fails inside."""

    app: ASGIApp
    telemetry: Telemetry
    hosts: AllowedHosts
    traces: Traces | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, _with_plain_failure(scope, send))
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        request = Request(scope, receive)
        request.state.request_id = request_id = _request_id(request)
        status = 0

        async def send_marked(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                for name, value in DEFAULTS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            if (refusal := self._refusal(request)) is not None:
                await problems.respond(refusal, request)(scope, receive, send_marked)
            else:
                await self.app(scope, receive, send_marked)
        except (ClientGone, ClientDisconnect):
            request.state.outcome = CANCELLED
            if not status:
                await Response(status_code=CLIENT_GONE)(scope, receive, send_marked)
        except asyncio.CancelledError:
            # the grace of a service that ends is over: nothing else cancels a request
            response = problems.respond(problems.of_error(NoLiveIndex(hint=SHUTTING_DOWN)), request)
            if not status:
                await response(scope, receive, send_marked)
        except Exception as error:
            response = problems.respond(problems.of_raised(error, request), request)
            if not status:
                await response(scope, receive, send_marked)
        finally:
            self._account(request, status, time.perf_counter() - started)

    def _refusal(self, request: Request) -> problems.Problem | None:
        if _head_bytes(request.scope) > MAX_HEAD_BYTES:
            return HEAD_TOO_LARGE
        error = self.hosts.refusal(request)
        return problems.of_error(error) if error is not None else None

    def _account(self, request: Request, status: int, seconds: float) -> None:
        route = getattr(request.scope.get("route"), "path", "unmatched")
        outcome = getattr(request.state, "outcome", OK)
        self.telemetry.count_request(route, outcome)
        # a client chooses the method; the longest that is registered has 17 letters
        method = request.method[:MAX_METHOD]
        facts = {
            "request_id": request.state.request_id,
            "method": method,
            "route": route,
            "status": status,
            "outcome": outcome,
            "seconds": round(seconds, 6),
            **getattr(request.state, FACTS, {}),
        }
        probed = route in POLLED and method != "POST" and outcome == OK
        if self.traces is not None and not probed:
            facts["trace_id"] = self.traces.request(facts, request.headers, getattr(request.state, FOUND, None))
        level = logging.DEBUG if probed else logging.INFO
        access.log(level, "%s %s %d", method, route, status, extra={FACTS: facts})


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`; cancels it and raises ClientGone when the client hangs up first."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_hang_up(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _head_bytes(scope: Scope) -> int:
    lengths = (len(name) + len(value) for name, value in scope["headers"])
    return len(scope.get("raw_path") or b"") + len(scope["query_string"]) + sum(lengths)


def _request_id(request: Request) -> str:
    given = request.headers.get(REQUEST_ID, "")
    return given if SANE_ID.fullmatch(given) else token_hex(8)


def _with_plain_failure(scope: Scope, send: Send) -> Send:
    """Log the OpenbookError that kept the service from starting in one line, without a traceback."""

    async def send_plain(message: Message) -> None:
        failure = getattr(scope["app"].state, "startup_failure", None)
        if message["type"] == "lifespan.startup.failed" and isinstance(failure, OpenbookError):
            message = {**message, "message": f"{failure.code}: {failure}"}
        await send(message)

    return send_plain
