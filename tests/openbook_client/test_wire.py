"""What is sent, what is sent again, and what a reply that is none becomes: against a scripted service."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest

from openbook_client import OpenbookError, Refused, Silent, Unreachable, WrongUse, errors, wire
from openbook_client.wire import retry_after_s
from tests.openbook_client.conftest import Connect, Scripted

INDEX = {
    **{"live": None, "resident": [], "versions": [], "checkpoint": "c", "model": "token", "max_no_answer": None},
    **{"prior": None, "reranker": None, "feedback": False},
}
SWAPPED = {"version": "b", "previous": "a", "generation": 1, "durable": True, "seconds": {"total": 0.1}}


def problem(code: str, status: int, **headers: str) -> tuple[int, dict[str, str], object]:
    body = {"type": "t", "title": "Odd", "status": status, "detail": f"{code} it is", "code": code, "request_id": "r1"}
    return status, headers, body


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "FIRST_PAUSE_S", 0.0)


@pytest.mark.parametrize(
    "first",
    [
        problem("overloaded", 503, **{"retry-after": "0"}),
        problem("too_many_attempts", 429, **{"retry-after": "0"}),
        (502, {}, b"<html>bad gateway</html>"),
        None,
    ],
)
def test_a_question_is_asked_again_where_the_service_is_busy_or_breaks_off(
    connect: Connect, scripted: Scripted, first: Any, no_pause: None
) -> None:
    scripted.replies = [first, (200, {}, INDEX)]
    assert connect(scripted.url).index().checkpoint == "c"
    assert len(scripted.asked) == 2


@pytest.mark.parametrize("first", [problem("not_ready", 503, **{"retry-after": "0"}), (502, {}, b""), None])
def test_a_swap_that_may_have_begun_is_not_sent_again(
    connect: Connect, scripted: Scripted, first: Any, no_pause: None
) -> None:
    scripted.replies = [first, (200, {}, SWAPPED)]
    with pytest.raises(OpenbookError):
        connect(scripted.url).swap("b")
    assert len(scripted.asked) == 1


def test_a_swap_that_was_refused_at_the_door_is_sent_again(
    connect: Connect, scripted: Scripted, no_pause: None
) -> None:
    scripted.replies = [problem("too_many_attempts", 429, **{"retry-after": "0"}), (200, {}, SWAPPED)]
    assert connect(scripted.url).swap("b").version == "b"


def test_retries_end_and_the_last_refusal_is_raised(connect: Connect, scripted: Scripted, no_pause: None) -> None:
    scripted.replies = [problem("overloaded", 503, **{"retry-after": "0"})]
    with pytest.raises(errors.Overloaded, match="overloaded it is"):
        connect(scripted.url, retries=3).index()
    assert len(scripted.asked) == 4
    with pytest.raises(errors.Overloaded):
        connect(scripted.url, retries=0).index()
    assert len(scripted.asked) == 5


def test_retry_after_is_waited_for(connect: Connect, scripted: Scripted, no_pause: None) -> None:
    scripted.replies = [problem("overloaded", 503, **{"retry-after": "1"}), (200, {}, INDEX)]
    began = time.monotonic()
    connect(scripted.url).index()
    assert time.monotonic() - began >= 1.0


def test_a_service_that_asks_for_more_than_a_minute_is_left_to_the_caller(connect: Connect, scripted: Scripted) -> None:
    scripted.replies = [problem("overloaded", 503, **{"retry-after": "3600"})]
    with pytest.raises(errors.Overloaded) as raised:
        connect(scripted.url).index()
    assert (raised.value.retry_after_s, len(scripted.asked)) == (3600.0, 1)


def test_pauses_grow_and_no_two_clients_wait_equally_long() -> None:
    asking = wire.Wire("http://127.0.0.1", retries=5)
    from openbook_client.calls import Calls

    call, busy = Calls(1, 1).index(), httpx.Response(503)
    pauses = [[asking.pause_s(call, busy, tries) or 0.0 for _ in range(20)] for tries in (1, 2, 3)]
    assert all(len(set(some)) > 1 for some in pauses)
    assert [sum(some) for some in pauses] == sorted(sum(some) for some in pauses)
    assert all(0.125 * 2**i <= one <= 0.375 * 2**i for i, some in enumerate(pauses) for one in some)


@pytest.mark.parametrize("value", ["", "soon", "-1", "²"])
def test_a_retry_after_that_is_none_is_none(value: str) -> None:
    assert retry_after_s(httpx.Response(503, headers={"retry-after": value.encode()})) is None


def test_a_retry_after_may_be_a_date() -> None:
    when = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    found = retry_after_s(httpx.Response(503, headers={"retry-after": when}))
    assert found is not None
    assert 25 < found <= 30
    assert retry_after_s(httpx.Response(503, headers={"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"})) == 0.0


def test_a_refused_connection_is_tried_again_and_then_said(connect: Connect, no_pause: None) -> None:
    with pytest.raises(Unreachable, match=r"No Openbook answers at http://127\.0\.0\.1:9: .*openbook serve") as raised:
        connect("http://127.0.0.1:9").swap("b")
    assert raised.value.code == "server_unreachable"


def test_a_service_that_does_not_answer_in_time_is_silent_and_asked_once(connect: Connect) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        with pytest.raises(Silent, match=r"has not answered within 0\.1 s"):
            connect(url, swap_timeout_s=0.1).swap("b")


@pytest.mark.parametrize(
    "reply",
    [
        (200, {}, b"<html>hello</html>"),
        (200, {}, {"detail": "another service"}),
        (404, {}, {"detail": "Not Found"}),
        (404, {}, [1]),
        (307, {"location": "/elsewhere"}, b""),
    ],
)
def test_another_server_on_the_port_is_not_taken_for_openbook(connect: Connect, scripted: Scripted, reply: Any) -> None:
    scripted.replies = [reply]
    with pytest.raises(Unreachable, match=rf"something else \(status {reply[0]}\)"):
        connect(scripted.url).index()


def test_a_code_that_the_client_does_not_know_is_kept(connect: Connect, scripted: Scripted) -> None:
    scripted.replies = [problem("of_tomorrow", 418)]
    with pytest.raises(Refused) as raised:
        connect(scripted.url).index()
    assert type(raised.value) is Refused
    assert (raised.value.code, raised.value.status, raised.value.request_id) == ("of_tomorrow", 418, "r1")


def test_fields_of_a_newer_service_are_kept(connect: Connect, scripted: Scripted) -> None:
    scripted.replies = [(200, {"x-request-id": "r7"}, INDEX | {"of_tomorrow": [1]})]
    found = connect(scripted.url).index()
    assert found.body() == INDEX | {"of_tomorrow": [1]}
    assert found.request_id == "r7"


def test_a_proxy_of_the_environment_does_not_come_between_this_machine_and_itself(
    connect: Connect, scripted: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    scripted.replies = [(200, {}, INDEX)]
    assert connect(scripted.url).index().checkpoint == "c"


def test_a_service_may_lie_below_a_path(connect: Connect, scripted: Scripted) -> None:
    scripted.replies = [(200, {}, INDEX)]
    connect(f"{scripted.url}/books/").index()
    assert scripted.asked[0].path == "/books/index"


def test_token_and_actor_are_sent_as_utf_8(connect: Connect, scripted: Scripted) -> None:
    scripted.replies = [(200, {}, SWAPPED)]
    connect(scripted.url, token="schl\u00fcssel", actor="josé").swap("b", verify="checksum", policy=None)
    (asked,) = scripted.asked
    sent = [asked.headers[name].encode("latin-1").decode() for name in ("authorization", "x-openbook-actor")]
    assert sent == ["Bearer schl\u00fcssel", "josé"]
    assert asked.body == {"version": "b", "verify": "checksum"}


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://127.0.0.1", "http://", "http://[::1"])
def test_a_url_that_is_none_is_wrong_use(connect: Connect, url: str) -> None:
    with pytest.raises(WrongUse, match="url: "):
        connect(url)


@pytest.mark.parametrize("token", ["open\nsesame", "sesame\x7f", " sesame", "half \ud83d"])
def test_a_token_that_no_header_carries_is_wrong_use_and_not_repeated(connect: Connect, token: str) -> None:
    with pytest.raises(WrongUse, match="token: ") as raised:
        connect("http://127.0.0.1", token=token)
    assert token not in str(raised.value)
    with pytest.raises(WrongUse, match="actor: "):
        connect("http://127.0.0.1", actor="a\tb")


@pytest.mark.parametrize("options", [{"timeout_s": float("nan")}, {"abstain": {"max_no_answer": float("inf")}}, {}])
def test_a_body_that_no_json_carries_is_wrong_use(connect: Connect, scripted: Scripted, options: Any) -> None:
    with pytest.raises(WrongUse, match="body: "):
        connect(scripted.url).answer("who ?" if options else "who \udcff ?", **options)
    assert scripted.asked == []


def test_a_password_in_the_url_is_not_shown(connect: Connect) -> None:
    with pytest.raises(Unreachable) as raised:
        connect("http://me:secret@127.0.0.1:9", retries=0).index()
    assert "secret" not in str(raised.value)
    assert "secret" not in repr(wire.Wire("http://127.0.0.1", token="secret"))
