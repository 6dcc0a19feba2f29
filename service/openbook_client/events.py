"""Reads a stream of server-sent events (HTML's `text/event-stream`), and what the events of an answer hold."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from openbook_client.errors import refused
from openbook_client.results import Answer, Problem, Result, Retrieval, Token

EVENTS = "text/event-stream"

StreamEvent = Retrieval | Token | Answer
KINDS: Mapping[str, type[StreamEvent]] = {"passages": Retrieval, "token": Token, "answer": Answer}


@dataclass(slots=True)
class EventReader:
    """Takes bytes as they come and gives events as they end. `ended` once the last one has come.

    Only a line feed ends a line of the service: a passage may hold other characters that count as line ends elsewhere.
    """

    request_id: str = ""
    ended: bool = False
    _rest: bytes = b""
    _name: str = ""
    _data: list[bytes] = field(default_factory=list)

    def feed(self, chunk: bytes) -> Iterator[StreamEvent]:
        """The events that this chunk ends. Raises Refused for the event `error`, ValueError for one that is none.

        An event of a kind that this client does not know is left out.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line:
                self._read(line)
            elif self._data:
                event = self._event()
                if event is not None:
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
        if name == "error":
            self.ended = True
            problem = Problem.model_validate_json(data)
            raise refused(problem.body(), status=problem.status)
        kind = KINDS.get(name)
        if kind is None:
            return None
        event = kind.model_validate_json(data)
        if isinstance(event, Result):
            event._request_id = self.request_id
        self.ended = name == "answer"
        return event
