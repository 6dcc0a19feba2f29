"""Guesses at the admin token: few from one place, and little memory for any number of places."""

import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

from openbook.errors import TooManyAttempts

MOST = 10
WINDOW_S = 60.0
MAX_PLACES = 1024
# What a provider gives to one customer: who has one address of it has all.
IPV6_PREFIX_BITS = 64

logger = logging.getLogger(__name__)


class FailedAttempts:
    """Counts wrong tokens by where they came from: an address, or of IPv6 the network that one customer has.

    `most` within `window_s` of the first, and whatever comes from there is refused until the window has passed, the
    right token too: else a guess that is right would still be told apart. Of more than `max_places` places the one
    that began first is forgotten. For the event loop alone: not locked.
    """

    def __init__(
        self,
        *,
        most: int = MOST,
        window_s: float = WINDOW_S,
        max_places: int = MAX_PLACES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._window_s = window_s
        self._max_places = max_places
        self._clock = clock
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()  # place -> (end of the window, failures)

    def __len__(self) -> int:
        return len(self._windows)

    def check(self, address: str) -> None:
        """Raises TooManyAttempts while as many have failed from there as may."""
        now = self._clock()
        ends, failures = self._window(address, now)
        if failures >= self._most:
            raise TooManyAttempts(most=self._most, retry_after_s=math.ceil(ends - now))

    def fail(self, address: str) -> None:
        """Count a wrong token."""
        now = self._clock()
        ends, failures = self._window(address, now)
        # an entry keeps its place in the order, which is that of the windows' beginnings
        self._windows[place_of(address)] = (ends, failures + 1)
        if failures + 1 == self._most:
            logger.warning("%d wrong admin tokens from %s: refused for %.0f s", self._most, address, ends - now)
        while len(self._windows) > self._max_places:
            self._windows.popitem(last=False)

    def _window(self, address: str, now: float) -> tuple[float, int]:
        while self._windows and next(iter(self._windows.values()))[0] <= now:
            self._windows.popitem(last=False)
        return self._windows.get(place_of(address), (now + self._window_s, 0))


def place_of(address: str) -> str:
    """Under which name an address is counted; one that cannot be read, as that of a socket file, is its own."""
    try:
        read = ip_address(address)
    except ValueError:
        return address
    if not isinstance(read, IPv6Address):
        return str(read)
    if read.ipv4_mapped is not None:
        return str(read.ipv4_mapped)
    host_bits = read.max_prefixlen - IPV6_PREFIX_BITS
    return f"{IPv6Address(int(read) >> host_bits << host_bits)}/{IPV6_PREFIX_BITS}"
