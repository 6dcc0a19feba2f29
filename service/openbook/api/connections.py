"""What a connection may do before it is a request: send a head that is small, and send it soon."""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# Request line and headers. Browsers send under two kilobytes, proxies add a few hundred bytes.
MAX_HEAD_BYTES = 16_384
# From the connection, or from the last response, to the end of the next head.
HEAD_TIMEOUT_S = 30.0


class BoundedProtocol(H11Protocol):
    """uvicorn's protocol, and a limit on the time in which nothing is asked: it has one for the time after a response,
    which a single byte ends, and none before the first request."""

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
            # a request: its body has a limit of its own, and its answer the time that it asks for
            self._end_watch()
        elif self._watch is None and not self.transport.is_closing():
            self._watch = self.loop.call_later(self.head_timeout_s, self.transport.close)

    def _end_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
