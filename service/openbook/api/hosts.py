"""Which hosts a request may name, and from which sites a browser may send one.

DNS rebinding: a foreign page makes its own name resolve to this machine, and its browser then lets it read what answers
there. The browser still sends that name in Host. An address in Host needs no check, because rebinding needs a name.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address

from starlette.requests import Request

from openbook.errors import HostRefused, OpenbookError, OriginRefused
from openbook.settings import Settings

ANY = "*"
READS = ("GET", "HEAD")


def names_in(setting: str) -> tuple[str, ...]:
    """The parts of a setting that lists names with commas between them."""
    return tuple(name for part in setting.split(",") if (name := part.strip()))


def address_in(text: str) -> IPv4Address | IPv6Address | None:
    """The IP address that `text` is, with or without brackets, zone and port; None where it is none."""
    for host in (text, _host_of(text)):
        try:
            return ip_address(host.partition("%")[0])
        except ValueError:
            pass
    return None


class AllowedHosts:
    """An address, localhost, the name to listen on, and the names of the setting `allowed_hosts`.

    Pages under such a name are the service's own; those of the setting `allowed_origins` may ask, too.
    """

    def __init__(self, settings: Settings) -> None:
        self._named = {_host_of(name) for name in names_in(settings.allowed_hosts)}
        self._known = self._named | {"localhost", _host_of(settings.host)}
        self.origins = names_in(settings.allowed_origins)

    def refusal(self, request: Request) -> OpenbookError | None:
        """HostRefused or OriginRefused; None for a request that may pass."""
        host = request.headers.get("host", "")
        # browsers always send it, HTTP/1.0 need not
        if host and not (ANY in self._named or _host_of(host) in self._known or address_in(host)):
            return HostRefused(host=host)
        if request.method in READS or request.headers.get("origin") in self.origins or not self.foreign(request):
            return None
        return OriginRefused(origin=origin_of(request))

    def foreign(self, request: Request) -> bool:
        """Whether a browser sent it from a page of another site, allowed or not."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        foreign = request.headers.get("sec-fetch-site") == "cross-site"
        if origin is not None:
            # "null" has no site
            site = origin.partition("://")[2]
            foreign = (foreign or not site or site.lower() != host.lower()) and _host_of(site) not in self._named
        return foreign


def origin_of(request: Request) -> str:
    """The site that a browser names, in words where it names none."""
    return request.headers.get("origin") or "another site"


def _host_of(authority: str) -> str:
    """The name or address without port, brackets and final dot, in small letters."""
    host, colon, port = authority.lower().rpartition(":")
    if not colon or not (port.isdecimal() or not port) or (":" in host and not host.endswith("]")):
        host = authority.lower()
    return host.removeprefix("[").removesuffix("]").removesuffix(".")
