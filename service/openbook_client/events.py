"""Reads a stream of server-sent events (HTML's `text/event-stream`), and what the events of an answer hold."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from openbook_client.errors import refused
from openbook_client.results import Answer, Problem, Result, Retrieval, Token

EVENTS = "text/event-stream"
# Nothing else ends a line: a passage may hold other characters that count as line ends elsewhere.
LINE_END = re.compile(rb"\r\n|\n|\r")

StreamEvent = Retrieval | Token | Answer
KINDS: Mapping[str, type[StreamEvent]] = {"passages": Retrieval, "token": Token, "answer": Answer}


@dataclass(slots=True)
class EventReader:
    """Takes bytes as they come and gives events as they end. `ended` once the last one has come."""

    request_id: str = ""
    ended: bool = False
    _rest: bytes = b""
    _after_return: bool = False
    _name: str = ""
    _data: list[bytes] = field(default_factory=list)

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """The events that this chunk ends. Raises Refused for the event `error`, ValueError for one that is none.

        An event of a kind that this client does not know is left out.
        """
        if not chunk:
            return
        # the line feed of a line end whose carriage return came before
        whole = chunk.removeprefix(b"\n") if self._after_return else chunk
        self._after_return = whole.endswith(b"\r")
        *lines, self._rest = LINE_END.split(self._rest + whole)
        for line in lines:
            if line:
                self._read(line)
            elif (event := self._event()) is not None:
                yield event

    def _read(self, line: bytes) -> None:
        # a comment, such as the service sends in a silence, has no name
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._name = value.decode()
        elif name == b"data":
            self._data.append(value)

    def _event(self) -> StreamEvent | None:
        name, data = self._name, b"\n".join(self._data)
        self._name, self._data = "", []
        if not data:
            return None
        if name == "error":
            self.ended = True
            raise refused(Problem.model_validate_json(data))
        kind = KINDS.get(name)
        if kind is None:
            return None
        event = kind.model_validate_json(data)
        if isinstance(event, Result):
            event._request_id = self.request_id
        self.ended = name == "answer"
        return event
