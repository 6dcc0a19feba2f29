"""What every response tells a browser, whatever it holds; a page has a policy of its own and keeps it."""

from starlette.datastructures import MutableHeaders

# For what is no page: nothing in it is run, shown in a frame, read by another site's script or kept by a cache.
DEFAULTS = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


def harden(headers: MutableHeaders) -> None:
    """Add what the response does not say itself."""
    for name, value in DEFAULTS.items():
        headers.setdefault(name, value)
