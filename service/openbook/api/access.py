"""Who may administer, and who it was."""

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, IPv6Network
from secrets import compare_digest
from typing import Annotated

from fastapi import Depends, Header, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from openbook.api.hosts import AllowedHosts, address_in, origin_of
from openbook.errors import AdminDisabled, InvalidRequest, OriginRefused, TooManyAttempts, Unauthorized
from openbook.settings import Settings

ACTOR = "x-openbook-actor"
MAX_ACTOR = 64
# The actor of a swap that follows CURRENT, and of a client whose address nothing tells.
FOLLOWER = "current"
UNKNOWN = "unknown"
MOST_ATTEMPTS = 10
WINDOW_S = 60.0
MAX_PLACES = 1024
# A provider gives a customer a network of this size, and the customer uses any address in it.
IPV6_PREFIX_BITS = 64

bearer = HTTPBearer(auto_error=False, description="The setting OPENBOOK_ADMIN_TOKEN.")
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FailedAttempts:
    """Counts wrong tokens by the place that sent them: an IPv4 address, or an IPv6 network of one customer.

    A place that sends `most` wrong tokens within `window_s` seconds of the first is refused until the window ends. Its
    right token is refused too, or a right guess would stand out. With more than `max_places` places, the place whose
    window began first is forgotten. Not locked: only the event loop uses it.
    """

    most: int = MOST_ATTEMPTS
    window_s: float = WINDOW_S
    max_places: int = MAX_PLACES
    clock: Callable[[], float] = time.monotonic
    # place -> (end of its window, failures), in the order in which the windows began
    _windows: OrderedDict[str, tuple[float, int]] = field(default_factory=OrderedDict)

    def __len__(self) -> int:
        return len(self._windows)

    def check(self, address: str) -> None:
        """Raises TooManyAttempts while the place of `address` is refused."""
        now = self.clock()
        ends, failures = self._window(place_of(address), now)
        if failures >= self.most:
            raise TooManyAttempts(most=self.most, retry_after_s=math.ceil(ends - now))

    def fail(self, address: str) -> None:
        """Count a wrong token."""
        now, place = self.clock(), place_of(address)
        ends, failures = self._window(place, now)
        self._windows[place] = (ends, failures + 1)
        if failures + 1 == self.most:
            logger.warning("%d wrong tokens from %s: refused for %.0f s", self.most, address, ends - now)
        while len(self._windows) > self.max_places:
            self._windows.popitem(last=False)

    def _window(self, place: str, now: float) -> tuple[float, int]:
        while self._windows and next(iter(self._windows.values()))[0] <= now:
            self._windows.popitem(last=False)
        return self._windows.get(place, (now + self.window_s, 0))


def place_of(address: str) -> str:
    """The place that an address belongs to. Clients without an IP address share one place."""
    read = address_in(address)
    if not isinstance(read, IPv6Address):
        return str(read or UNKNOWN)
    if read.ipv4_mapped is not None:
        return str(read.ipv4_mapped)
    return str(IPv6Network((int(read), IPV6_PREFIX_BITS), strict=False))


async def admin(request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]) -> None:
    """Let a request with the admin token pass. Raises OriginRefused, AdminDisabled, Unauthorized, TooManyAttempts.

    A request without a token is no guess and is not counted. A page of another site guesses none, not even one that may
    ask.
    """
    hosts: AllowedHosts = request.app.state.hosts
    if hosts.foreign(request):
        raise OriginRefused("administration", origin=origin_of(request))
    settings: Settings = request.app.state.settings
    token = settings.admin_token
    if token is None or not token.get_secret_value():
        raise AdminDisabled
    if credentials is None:
        raise Unauthorized(what="missing")
    attempts: FailedAttempts = request.app.state.attempts
    address = address_of(request)
    attempts.check(address)
    # starlette decodes headers as latin-1; compare the bytes that were sent
    given = credentials.credentials.encode("latin-1")
    if is_admin_token(given, settings):
        return
    attempts.fail(address)
    raise Unauthorized(what="wrong" if _utf8(given) is not None else "not sent as UTF-8")


def is_admin_token(given: bytes, settings: Settings) -> bool:
    """Whether these bytes, as they were sent, are the admin token; never where there is none."""
    token = "" if settings.admin_token is None else settings.admin_token.get_secret_value()
    # Python reads bytes of the environment that are not UTF-8 as surrogates; turn them back into those bytes
    return compare_digest(given, token.encode("utf-8", "surrogateescape")) and bool(token)


def actor(
    request: Request,
    named: Annotated[
        str | None,
        Header(alias=ACTOR, description="Who asks, for the history: at most 64 printable characters, in UTF-8."),
    ] = None,
) -> str:
    """Who asks for a swap: the header x-openbook-actor, else the address of the client.

    Raises InvalidRequest for a name that the history could not show as it was sent.
    """
    name = _utf8((named or "").encode("latin-1"))
    if name is None:
        raise InvalidRequest(field=ACTOR, reason="is not sent as UTF-8")
    name = name.strip()
    if len(name) > MAX_ACTOR:
        raise InvalidRequest(field=ACTOR, reason=f"must have at most {MAX_ACTOR} characters")
    if not name.isprintable():
        raise InvalidRequest(field=ACTOR, reason="holds a character that cannot be printed")
    if name.casefold() in (FOLLOWER, UNKNOWN) or address_in(name) is not None:
        raise InvalidRequest(field=ACTOR, reason="must be a name: the history keeps this for those who give none")
    return name or address_of(request)


def address_of(request: Request) -> str:
    """The address of the client: never a text that it chose: a proxy may pass on any X-Forwarded-For."""
    read = address_in(request.client.host) if request.client is not None else None
    return str(read) if read is not None else UNKNOWN


def _utf8(sent: bytes) -> str | None:
    try:
        return sent.decode()
    except UnicodeDecodeError:
        return None


TheActor = Annotated[str, Depends(actor)]
