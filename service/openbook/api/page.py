"""The pages for people: `/`, `/docs`, and the files that they are made of. No other host is asked for anything.

starlette's StaticFiles would read the disk for each request, and its ETags would differ between replicas: it makes them
from the time of the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from string import Template

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

WEB = Path(__file__).parent / "web"
PAGES = {"/": "index.html", "/docs": "docs.html"}
# Not from `mimetypes`, which reads the system's own table. starlette adds the charset.
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}

# No inline script or style, no other host, no frame; and no string becomes markup or code (trusted types).
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
# In place of or beside the DEFAULTS of openbook.api.middleware.
HEADERS = {
    # the browser keeps a file and asks about it each time: a page never mixes the files of two releases
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str


def read_assets(folder: Path = WEB) -> Mapping[str, Asset]:
    """Every file of the pages by its name: some tens of kilobytes."""
    assets = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in MEDIA_TYPES:
            content = path.read_bytes()
            assets[path.name] = Asset(content, MEDIA_TYPES[path.suffix], f'"{sha256(content).hexdigest()[:32]}"')
    return assets


def wants_page(request: Request) -> bool:
    """Whether a browser asks, for a person."""
    return "text/html" in request.headers.get("accept", "")


def filled_page(file: Path, **markup: str) -> Response:
    """The page that `file` makes with this markup. The browser does not keep it: it keeps no answer."""
    filled = Template(file.read_text(encoding="utf-8")).substitute(markup)
    return HTMLResponse(filled, headers=HEADERS | {"cache-control": "no-store"})


def page_router() -> APIRouter:
    """The pages and their files: GET and HEAD, with an ETag, and 304 for a browser that has the file already."""
    assets = read_assets()
    router = APIRouter(include_in_schema=False)

    async def send(request: Request) -> Response:
        # a look-up among what was read: no name leads out of the folder
        asset = assets.get(PAGES.get(request.url.path) or request.path_params["name"])
        if asset is None:
            raise HTTPException(404)
        headers = {**HEADERS, "etag": asset.etag}
        if _has_already(request.headers.get("if-none-match", ""), asset.etag):
            return Response(status_code=304, headers=headers)
        return Response(asset.content, headers=headers, media_type=asset.media_type)

    for path in (*PAGES, "/static/{name}"):
        router.add_api_route(path, send, methods=["GET", "HEAD"])
    return router


def _has_already(if_none_match: str, etag: str) -> bool:
    """Whether the header names this file; a proxy that compresses marks the ETag as weak."""
    named = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return etag in named or named == ["*"]
