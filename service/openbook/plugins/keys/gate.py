"""The middleware that lets nobody ask without a key."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openbook.api import problems
from openbook.api.access import FailedAttempts, address_of, is_admin_token
from openbook.api.logs import FACTS
from openbook.api.middleware import PROBES
from openbook.api.page import PAGES
from openbook.application.telemetry import Telemetry
from openbook.errors import OpenbookError, TooManyAttempts, Unauthorized
from openbook.plugins.keys.keys_file import Key, KeysFile
from openbook.plugins.keys.settings import KeysSettings
from openbook.settings import Settings

# The pages and what they are made of: their browser sends no key for them.
OPEN = frozenset({*PROBES, *PAGES, "/openapi.json"})
FILES = "/static/"
# What asks for the admin token itself.
ADMINISTRATION = frozenset(
    {*(("POST", f"/index/{name}") for name in ("swap", "rollback", "load")), ("GET", "/index/history")}
)


class KeyRefused(Unauthorized):
    message = "This call needs the header 'Authorization: Bearer <an API key>', and the key was {what}."


class RateExceeded(TooManyAttempts):
    code = "rate_exceeded"
    message = "The key of {name} may ask {rate} times a minute. Try again in {retry_after_s} s."


@dataclass(slots=True)
class Rates:
    """A bucket of tokens for each name: a minute's questions at once, or one after the other."""

    clock: Callable[[], float] = time.monotonic
    # name -> (tokens left, when)
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)

    def take(self, key: Key) -> None:
        """Count a question. Raises RateExceeded where there were too many, and does not count it then."""
        if key.rate is None:
            return
        now, a_second = self.clock(), key.rate / 60
        left, when = self._buckets.get(key.name, (key.rate, now))
        left = min(key.rate, left + (now - when) * a_second)
        if left < 1:
            raise RateExceeded(name=key.name, rate=key.rate, retry_after_s=math.ceil((1 - left) / a_second))
        self._buckets[key.name] = left - 1, now


@dataclass(frozen=True, slots=True)
class KeyGate:
    """Passes on what brings a key, the admin token or neither of them where none is needed; answers the rest itself."""

    app: ASGIApp
    settings: Settings
    keys: KeysFile
    rates: Rates
    count: Callable[[str], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_open(scope["method"], scope["path"]):
            await self.app(scope, receive, send)
            return
        request, key = Request(scope, receive), None
        try:
            key = self._key(request)
            if key is not None and request.method == "POST":
                self.rates.take(key)
        except OpenbookError as error:
            await problems.respond(problems.of_error(error), request)(scope, receive, send)
        else:
            await self.app(scope, receive, send if key is None else self._while_held(key, send))
        finally:
            if key is not None:
                # behind the call, which leaves facts of its own
                setattr(request.state, FACTS, {**getattr(request.state, FACTS, {}), "reader": key.name})
                self.count(key.name)

    def _key(self, request: Request) -> Key | None:
        """Whose key it brings; None for the admin token. Raises KeyRefused, TooManyAttempts."""
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise KeyRefused(what="missing")
        attempts: FailedAttempts = request.app.state.attempts
        address, sent = address_of(request), given.strip().encode("latin-1")
        attempts.check(address)
        key = self.keys.holder(sent)
        if key is None and not is_admin_token(sent, self.settings):
            attempts.fail(address)
            raise KeyRefused(what="wrong")
        return key

    def _while_held(self, key: Key, send: Send) -> Send:
        """As `send`; raises KeyRefused before a further event of a stream whose key is gone."""

        async def send_while_held(message: Message) -> None:
            if message.get("more_body") and not self.keys.has(key):
                raise KeyRefused(what="taken back")
            await send(message)

        return send_while_held


def gate(settings: Settings, telemetry: Telemetry) -> Callable[[ASGIApp], ASGIApp] | None:
    """The middleware where the settings name a file of keys. Raises SettingInvalid for a file that is broken."""
    if not isinstance(settings, KeysSettings) or settings.api_keys_file is None:
        return None
    keys, rates = KeysFile(settings.api_keys_file), Rates()
    count = telemetry.counter("openbook_reader_requests", "Requests by the name of the key", "reader")
    return lambda app: KeyGate(app, settings, keys, rates, count)


def _is_open(method: str, path: str) -> bool:
    return path in OPEN or path.startswith(FILES) or (method, path) in ADMINISTRATION
