"""What a request body must be before anything looks into it: small, soon there, JSON, UTF-8."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Message, Receive

JSON = "application/json"
# For a whole body, which is small: 262,144 bytes in this time are 70 kbit/s.
BODY_TIMEOUT_S = 30.0
# bytes
MAX_BODY = 262_144
# The rest of a body is not read, so its connection cannot be used again.
CLOSE = {"connection": "close"}


class JsonRoute(APIRoute):
    """A route that reads and checks the body within bounds and then gives it to FastAPI unchanged.

    A request may leave out a body that has a default.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        optional = not self.body_field.field_info.is_required()

        async def handle_checked(request: Request) -> Response:
            try:
                async with asyncio.timeout(BODY_TIMEOUT_S):
                    body = await _read(request, MAX_BODY)
            except TimeoutError as error:
                detail = f"The request body did not come within {BODY_TIMEOUT_S:g} s."
                raise HTTPException(408, detail, CLOSE) from error
            if body or not optional:
                _check(request.headers.get("content-type", ""), body)
            return await handle(Request(request.scope, _again(body, request.receive)))

        return handle_checked


async def _read(request: Request, most: int) -> bytes:
    """The whole body. Raises 413 as soon as more than `most` bytes are announced or have come."""
    too_large = HTTPException(413, f"The request body has more than {most} bytes.", CLOSE)
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > most:
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise too_large
    return bytes(body)


def _check(content_type: str, body: bytes) -> None:
    if content_type.partition(";")[0].strip().lower() != JSON:
        raise HTTPException(415, f"Send the body as {JSON}.")
    try:
        json.loads(body.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"The body is not UTF-8: byte {error.start} cannot be read.") from error
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise HTTPException(400, f"The body is not JSON: {reason}.") from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "The body is not JSON: a number or a nesting in it is out of bounds.") from error


def _refuse_constant(name: str) -> None:
    """NaN and Infinity are not JSON, although Python reads them."""
    raise ValueError(name)


def _again(body: bytes, receive: Receive) -> Receive:
    """Gives the body once, and then what the client sends next, which is its hanging up."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return messages.pop() if messages else await receive()

    return receive_again
