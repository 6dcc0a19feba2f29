"""Streams of both clients: against a real service, and against one that says what a test tells it to."""

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from openbook_client import Answer, AsyncOpenbook, Openbook, Refused, Retrieval, Token, Unreachable
from openbook_client.events import EventReader
from tests.fixtures.event_streams import event_streams
from tests.openbook.api.conftest import PERU, SlowSearch, get, post
from tests.openbook_client.conftest import Scripted
from tests.openbook_client.test_wire import problem
from tests.waiting import until

Stream = Callable[..., list[Any]]
CUT_OFF = {"content-type": "text/event-stream", "content-length": "900", "connection": "close"}
TOKEN = {"text": "lima", "log_prob": -0.5, "posterior": [1.0]}


async def of_async(url: str, *arguments: Any, retries: int = 2, most: int | None = None, **options: Any) -> list[Any]:
    found: list[Any] = []
    async with (
        AsyncOpenbook(url, retries=retries) as service,
        service.stream(*arguments, **options) as events,
    ):
        async for event in events:
            found.append(event)
            if len(found) == most:
                break
    return found


def of_sync(url: str, *arguments: Any, retries: int = 2, most: int | None = None, **options: Any) -> list[Any]:
    found: list[Any] = []
    with Openbook(url, retries=retries) as service, service.stream(*arguments, **options) as events:
        for event in events:
            found.append(event)
            if len(found) == most:
                break
    return found


@pytest.fixture(params=[of_sync, lambda *a, **o: asyncio.run(of_async(*a, **o))], ids=["sync", "async"])
def stream(request: pytest.FixtureRequest) -> Iterator[Stream]:
    """All events of a stream, or its first `most`."""
    return request.param  # type: ignore[no-any-return]


def sent(*events: tuple[str, object], end: bytes = b"\n\n") -> tuple[int, dict[str, str], bytes]:
    """A reply that streams these events."""
    text = "\n\n".join(f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}" for name, data in events)
    return 200, {"content-type": "text/event-stream; charset=utf-8", "x-request-id": "r9"}, text.encode() + end


@pytest.fixture(scope="module")
def body(library: str) -> dict[str, Any]:
    found: dict[str, Any] = post(f"{library}/answer", json={"question": PERU, "n_docs": 2, "max_new_tokens": 3}).json()
    return found


def test_passages_then_tokens_then_the_answer_that_answer_gives(stream: Stream, library: str) -> None:
    first, *tokens, last = stream(library, PERU, n_docs=3, max_new_tokens=4)
    with Openbook(library) as service:
        expected = service.answer(PERU, n_docs=3, max_new_tokens=4)
    assert isinstance(first, Retrieval)
    assert [one.passage_id for one in first.passages] == [one.passage_id for one in expected.passages]
    assert all(isinstance(one, Token) for one in tokens)
    assert tuple(tokens) == last.tokens
    assert isinstance(last, Answer)
    assert last.body() | {"seconds": 0} == expected.body() | {"seconds": 0}
    assert first.request_id == last.request_id != ""


@pytest.mark.parametrize(
    ("option", "code"), [({"n_docs": 13}, "invalid_request"), ({"abstain": "calibrated"}, "not_calibrated")]
)
def test_an_error_before_the_first_event_is_raised(
    stream: Stream, library: str, option: dict[str, Any], code: str
) -> None:
    with pytest.raises(Refused) as raised:
        stream(library, PERU, **option)
    assert raised.value.code == code


def test_an_error_after_it_is_raised_then(stream: Stream, scripted: Scripted) -> None:
    late = {"type": "t", "title": "Late", "status": 504, "detail": "too late", "code": "deadline_exceeded"}
    scripted.replies = [sent(("token", TOKEN), ("error", late | {"request_id": "r9"}))]
    with pytest.raises(Refused, match="too late") as raised:
        stream(scripted.url, PERU)
    assert (raised.value.code, raised.value.status, raised.value.request_id) == ("deadline_exceeded", 504, "r9")
    assert len(scripted.asked) == 1


def test_a_busy_service_is_asked_again_before_the_first_event(
    stream: Stream, scripted: Scripted, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openbook_client.wire.FIRST_PAUSE_S", 0.0)
    scripted.replies = [problem("overloaded", 503, **{"retry-after": "0"}), None, sent(("answer", body))]
    (answer,) = stream(scripted.url, PERU)
    assert answer.body() == body
    assert [one.body["stream"] for one in scripted.asked] == [True] * 3


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (sent(("token", TOKEN)), "the stream was cut off before its answer"),
        (sent(("token", TOKEN), end=b"\n"), "the stream was cut off"),
        (sent(("token", {"text": 3})), "what it streams is something else"),
        (sent(("error", {"message": "no problem document"})), "what it streams is something else"),
        (
            (200, CUT_OFF, b"event: tok"),
            "peer closed",
        ),
        ((200, {}, b"<html>hello</html>"), "something else"),
    ],
)
def test_a_stream_that_breaks_off_or_is_none_is_no_answer(
    stream: Stream, scripted: Scripted, reply: Any, said: str
) -> None:
    scripted.replies = [reply]
    with pytest.raises(Unreachable, match=said):
        stream(scripted.url, PERU)


def test_comments_and_kinds_that_the_client_does_not_know_are_left_out(
    stream: Stream, scripted: Scripted, body: dict[str, Any]
) -> None:
    status, headers, content = sent(("of_tomorrow", {"a": 1}), ("answer", body))
    scripted.replies = [(status, headers, b": ping\n\n" + content)]
    assert [type(one) for one in stream(scripted.url, PERU)] == [Answer]


def test_what_other_readers_take_for_the_end_of_a_line_is_a_part_of_the_text() -> None:
    odd = TOKEN | {"text": "a\u2028b\u2029c\x85d\x0be\x1cf"}
    _, _, content = sent(("token", odd))
    for size in (1, 2, 7, len(content)):
        reader = EventReader()
        chunks = [content[start : start + size] for start in range(0, len(content), size)]
        (event,) = (event for chunk in chunks for event in reader.feed(chunk))
        assert event.body() == odd
    (event,) = EventReader().feed(content.replace(b"\n", b"\r\n").replace(b": ", b":"))
    assert event.body() == odd


def test_leaving_the_block_ends_the_question(
    stream: Stream, server: str, slow_search: SlowSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow_search.go_on.set()
    (first,) = stream(server, PERU, most=1)
    assert isinstance(first, Retrieval)
    until(lambda: not any(one["leases"] for one in get(f"{server}/index").json()["resident"]))
    assert "openbook_questions_running 0.0" in get(f"{server}/metrics").text


def test_the_client_reads_every_stream_that_the_standard_allows() -> None:
    for case in event_streams(500, seed=6, names=("token",)):
        reader = EventReader()
        told = [token for piece in case.pieces for token in reader.feed(piece.encode())]
        assert [token.body() for token in told] == [json.loads(data) for _, data in case.events]
