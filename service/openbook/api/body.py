"""What a request body must be before anything looks into it: small enough, JSON, UTF-8."""

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
# For a whole body, which is small: 65,536 bytes in this time are 18 kbit/s.
BODY_TIMEOUT_S = 30.0


class JsonRoute(APIRoute):
    """A route whose body is read here, bounded and checked, and then given to FastAPI as it came.

    Where every field has a default and the body as well, none need be sent.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle
        optional = not self.body_field.field_info.is_required()

        async def handle_checked(request: Request) -> Response:
            try:
                async with asyncio.timeout(request.app.state.body_timeout_s):
                    body = await _read(request, request.app.state.max_body_bytes)
            except TimeoutError as error:
                raise _too_slow(request.app.state.body_timeout_s) from error
            if body or not optional:
                _check_type(request)
                _check_json(body)
            return await handle(Request(request.scope, _again(body, request.receive)))

        return handle_checked


async def _read(request: Request, most: int) -> bytes:
    """The whole body; 413 as soon as more than `most` bytes were announced or have come, chunked or not."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > most:
        raise _too_large(most)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise _too_large(most)
    return bytes(body)


def _too_large(most: int) -> HTTPException:
    # the rest of the body is not read, so the connection cannot be used again
    return HTTPException(413, f"The request body has more than {most} bytes.", {"connection": "close"})


def _too_slow(seconds: float) -> HTTPException:
    return HTTPException(408, f"The request body did not come within {seconds:g} s.", {"connection": "close"})


def _check_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != JSON:
        raise HTTPException(415, f"Send the body as {JSON}.")


def _check_json(body: bytes) -> None:
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise HTTPException(400, f"The body is not UTF-8: byte {error.start} cannot be read.") from error
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise HTTPException(400, f"The body is not JSON: {reason}.") from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "The body is not JSON: a number or a nesting in it is out of bounds.") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _again(body: bytes, receive: Receive) -> Receive:
    """First the body, once, and then whatever the client does next, which is to hang up."""
    given = False

    async def receive_again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again
