"""What is the same for both clients: the requests, the reading of responses, and when a call is sent again.

A transport hands in what became of a request: the response, or the error of httpx.
"""

import ipaddress
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
from pydantic import ValidationError

from openbook_client.calls import Call, R
from openbook_client.errors import Silent, Unreachable, WrongUse, refused
from openbook_client.events import EVENTS, EventReader
from openbook_client.results import Problem

Outcome = httpx.Response | httpx.HTTPError

CONNECT_S = 10.0
# Before the second try; it doubles with each further one.
FIRST_PAUSE_S = 0.25
# A service that asks for more is not waited for: the caller decides.
LONGEST_PAUSE_S = 60.0
# The request did not reach the service.
NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
# The service refuses before it does anything.
REFUSED_AT_ONCE = (429,)
# Of a service that is busy or restarting, or of the proxy before it.
UNAVAILABLE = (429, 502, 503)


@dataclass(frozen=True, slots=True)
class Wire:
    """The service at `url`, with the headers of every request. Raises WrongUse for what no request can carry."""

    url: str
    token: str | None = field(default=None, repr=False)
    actor: str | None = None
    retries: int = 0

    def __post_init__(self) -> None:
        check_url(self.url)
        if self.token:
            check_token(self.token)
        if self.actor and not self.actor.isprintable():
            raise WrongUse("actor", "holds a character that cannot be printed")

    @property
    def headers(self) -> Mapping[bytes, bytes]:
        headers: dict[bytes, bytes] = {}
        if self.token:
            headers[b"authorization"] = f"Bearer {self.token}".encode(errors="surrogateescape")
        if self.actor:
            headers[b"x-openbook-actor"] = self.actor.encode(errors="surrogateescape")
        return headers

    @property
    def transport(self) -> dict[str, Any]:
        """The arguments of httpx's client.

        A proxy of the environment is for the world outside, not for this machine. Certificates are not read for plain
        HTTP, which would take longer than a call; redirects, which could lead to TLS, are not followed.
        """
        return {"trust_env": not _is_this_machine(self.url), "verify": httpx.URL(self.url).scheme == "https"}

    def request(self, http: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
        """Raises WrongUse for a body that JSON cannot carry."""
        timeout = httpx.Timeout(call.timeout_s, connect=CONNECT_S)
        url = self.url.rstrip("/") + call.path
        try:
            return http.build_request(call.method, url, json=call.body, headers=self.headers, timeout=timeout)
        except ValueError as error:
            reason = "holds NaN, an infinity or half of a surrogate pair, which no JSON carries"
            raise WrongUse("body", reason) from error

    def pause_s(self, call: Call[Any], outcome: Outcome, tries: int) -> float | None:
        """The seconds until the call is sent again after so many tries; None where it is not."""
        if tries > self.retries or not _may_be_repeated(call, outcome):
            return None
        asked = retry_after_s(outcome) if isinstance(outcome, httpx.Response) else None
        if asked is not None and asked > LONGEST_PAUSE_S:
            return None
        # at random, so that clients that were refused together do not come again together
        return (asked or 0.0) + FIRST_PAUSE_S * 2.0 ** (tries - 1) * random.uniform(0.5, 1.5)

    def result(self, call: Call[R], outcome: Outcome) -> R:
        """Raises what became of the call where it has no result."""
        self.check(call, outcome)
        assert isinstance(outcome, httpx.Response)
        try:
            result = call.result.model_validate_json(outcome.content)
        except ValidationError as error:
            raise self._something_else(outcome) from error
        result._request_id = outcome.headers.get("x-request-id", "")
        return result

    def check(self, call: Call[Any], outcome: Outcome) -> None:
        """Raise Refused for a problem, Silent after a timeout, Unreachable for anything else that is no success."""
        if isinstance(outcome, httpx.TimeoutException) and not isinstance(outcome, NOT_SENT):
            raise Silent(self.shown, call.timeout_s) from outcome
        if isinstance(outcome, httpx.HTTPError):
            raise Unreachable(self.shown, str(outcome) or type(outcome).__name__) from outcome
        if outcome.is_success:
            return
        try:
            problem = Problem.model_validate_json(outcome.content)
        except ValidationError as error:
            raise self._something_else(outcome) from error
        raise refused(problem, retry_after_s=retry_after_s(outcome))

    def streams(self, response: httpx.Response) -> bool:
        return response.is_success and response.headers.get("content-type", "").startswith(EVENTS)

    def events(self, call: Call[Any], outcome: Outcome) -> EventReader:
        """The reader of a stream that begins. Raises as `check`."""
        self.check(call, outcome)
        assert isinstance(outcome, httpx.Response)
        if not self.streams(outcome):
            raise self._something_else(outcome)
        return EventReader(outcome.headers.get("x-request-id", ""))

    @contextmanager
    def streaming(self, call: Call[Any], events: EventReader) -> Iterator[None]:
        """Raises what a stream that breaks off, or that holds something else, ends with."""
        try:
            yield
        except httpx.HTTPError as error:
            self.check(call, error)
        except ValueError as error:
            raise Unreachable(self.shown, "what it streams is something else") from error
        if not events.ended:
            raise Unreachable(self.shown, "the stream was cut off before its answer")

    def _something_else(self, response: httpx.Response) -> Unreachable:
        return Unreachable(self.shown, f"what answers there is something else (status {response.status_code})")

    @property
    def shown(self) -> str:
        """The URL without a password."""
        return str(httpx.URL(self.url.rstrip("/")).copy_with(userinfo=b"")) if "@" in self.url else self.url.rstrip("/")


def _may_be_repeated(call: Call[Any], outcome: Outcome) -> bool:
    if isinstance(outcome, NOT_SENT):
        return True
    if isinstance(outcome, httpx.HTTPError):
        # a timeout has used up the time of the call; a connection that broke has not
        return call.repeatable and not isinstance(outcome, httpx.TimeoutException)
    # a 503 may come from a service that ends while its swap goes on
    return outcome.status_code in (UNAVAILABLE if call.repeatable else REFUSED_AT_ONCE)


def retry_after_s(response: httpx.Response) -> float | None:
    """The header Retry-After, which is a number of seconds or a date."""
    value = response.headers.get("retry-after", "").strip()
    if value.isascii() and value.isdigit():
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (when.replace(tzinfo=when.tzinfo or UTC) - datetime.now(UTC)).total_seconds())


def check_url(url: str) -> None:
    """Raise WrongUse for a `url` that is none."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise WrongUse("url", f"{error} (such as http://127.0.0.1:8000)") from error
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise WrongUse("url", f"{url!r} is no address of a service (such as http://127.0.0.1:8000)")


def check_token(token: str) -> None:
    """Raise WrongUse for an admin token that no HTTP header carries unchanged. The error never repeats the token.

    Characters outside ASCII are sent as UTF-8; a lone surrogate stands for a byte of the environment and is sent as it.
    """
    if any(character < " " or character == "\x7f" for character in token):
        raise WrongUse("token", "holds a control character, which no HTTP header can carry")
    if token != token.strip(" "):
        raise WrongUse("token", "begins or ends with a space, which no HTTP header keeps")
    try:
        token.encode(errors="surrogateescape")
    except UnicodeEncodeError as error:
        raise WrongUse("token", "holds half of a surrogate pair, which is no character") from error


def _is_this_machine(url: str) -> bool:
    host = httpx.URL(url).host
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
