"""An answer as server-sent events (HTML's `text/event-stream`), told while it is made."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import Request
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from openbook.api import problems
from openbook.api.middleware import while_connected
from openbook.api.problems import Problem
from openbook.api.writing import Writer, without_separators
from openbook.entities import Answer, AnswerToken, Retrieval
from openbook.errors import ResponseTooLarge
from openbook_client import results

EVENTS = "text/event-stream"
# Proxies close a connection on which nothing comes; the shortest of their usual limits is a minute.
HEARTBEAT_S = 15.0

Event = Retrieval | AnswerToken | Answer
T = TypeVar("T")


class EventStream(Response):
    """Sends each event as it comes, and a comment whenever none came for HEARTBEAT_S.

    An error before the first event is raised by `begin`, and so has its own status. One that comes later is the last
    event: also ResponseTooLarge, in place of the event with which the stream would be larger than `writer` allows. A
    client that hangs up ends the work, which raises ClientGone.
    """

    media_type = EVENTS

    def __init__(
        self,
        request: Request,
        events: AsyncGenerator[Event],
        writer: Writer,
        answered: Callable[[Answer], None] = lambda answer: None,
    ) -> None:
        """`answered` receives the answer before it is sent."""
        self.status_code = 200
        self.background = None
        # nginx, and the proxies that follow it, pass on each event at once
        self.init_headers({"x-accel-buffering": "no"})
        self._request = request
        self._events = _with_heartbeats(events)
        self._writer = writer
        self._room = writer.most_bytes
        self._answered = answered
        self._first = b""

    async def begin(self) -> "EventStream":
        """Wait for the first event, or for the first heartbeat. Raises what ends the work before it."""
        try:
            self._first = await while_connected(self._request, self._first_bytes())
        except BaseException:
            await self._events.aclose()
            raise
        return self

    async def _first_bytes(self) -> bytes:
        return await self._bytes(await _next(self._events))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._events):
            await while_connected(self._request, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})

        async def send_part(content: bytes) -> None:
            await send({"type": "http.response.body", "body": content, "more_body": True})

        try:
            await send_part(self._first)
            async for event in self._events:
                await send_part(await self._bytes(event))
        except Exception as error:
            problem = problems.of_raised(error, self._request)
            self._request.state.outcome = problem.code
            end = self.failed(problem)
        else:
            end = self.ended()
        await send({"type": "http.response.body", "body": end, "more_body": False})

    async def _bytes(self, event: Event | None) -> bytes:
        """What is sent for an event, or for none."""
        if event is None:
            return KEEPALIVE_COMMENT
        if isinstance(event, AnswerToken):
            # small, and soon wanted
            content = without_separators(self.told(event))
            if len(content) > self._room:
                raise ResponseTooLarge(most=self._writer.most_bytes)
        else:
            content = await self._writer.write(lambda: self.told(event), event, self._room)
        self._room -= len(content)
        if isinstance(event, Answer):
            self._answered(event)
        return content

    def told(self, event: Event) -> bytes:
        """What is sent for an event."""
        match event:
            case Retrieval():
                return format_sse_event(event="passages", data_str=_json(results.Retrieval, event))
            case AnswerToken():
                return format_sse_event(event="token", data_str=_json(results.Token, event))
            case Answer():
                return format_sse_event(event="answer", data_str=_json(results.Answer, event))

    def failed(self, problem: Problem) -> bytes:
        """What is sent at the end when there is no answer."""
        said = problems.as_json(problems.body(problem, self._request))
        return format_sse_event(event="error", data_str=said.decode())

    def ended(self) -> bytes:
        """What is sent after the answer."""
        return b""


def asks_for_events(accept: str) -> bool:
    """Whether the header Accept names `text/event-stream`, and no JSON beside it."""
    named = {one.partition(";")[0].strip().lower() for one in accept.split(",")}
    return EVENTS in named and "application/json" not in named


def _json(response: Any, entity: Event) -> str:
    text: str = response.model_validate(entity).model_dump_json()
    return text


async def _with_heartbeats(events: AsyncGenerator[Event]) -> AsyncGenerator[Event | None]:
    """The events, and None whenever none came for HEARTBEAT_S. Closes `events` at its end."""
    async with aclosing(events):
        coming: asyncio.Future[Event] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(_next(events))
                if not (await asyncio.wait({coming}, timeout=HEARTBEAT_S))[0]:
                    yield None
                    continue
                found, coming = coming, None
                yield found.result()
        except StopAsyncIteration:
            return
        finally:
            if coming is not None:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)


async def _next(events: AsyncIterator[T]) -> T:
    # a coroutine, as tasks are made of; `anext` gives less
    return await anext(events)
