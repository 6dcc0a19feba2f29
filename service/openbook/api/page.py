"""The pages for people: `/`, `/docs`, and the files that they are made of. No other host is asked for anything."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

WEB = Path(__file__).parent / "web"
PAGES = {"/": "index.html", "/docs": "docs.html"}
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
METHODS = ["GET", "HEAD"]

# Nothing inline, nothing from elsewhere, nobody's frame; and no string ever becomes markup or code (trusted types).
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
HEADERS = {
    # kept by the browser, and asked about each time: a page never mixes the files of two releases
    "cache-control": "no-cache",
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str


def read_assets(folder: Path = WEB) -> Mapping[str, Asset]:
    """Every file of the pages by its name. They are some tens of kilobytes, and no request reads a disk for them."""
    assets = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in MEDIA_TYPES:
            content = path.read_bytes()
            assets[path.name] = Asset(content, MEDIA_TYPES[path.suffix], f'"{sha256(content).hexdigest()[:32]}"')
    return assets


def page_router() -> APIRouter:
    """The routes of the pages and their files: GET and HEAD, with an ETag, and 304 to whom has the file already."""
    assets = read_assets()
    router = APIRouter(include_in_schema=False)

    async def page(request: Request) -> Response:
        return _respond(request, assets[PAGES[request.url.path]])

    async def static(request: Request, name: str) -> Response:
        # a look-up among what was read: no name leads anywhere else
        if name not in assets:
            raise HTTPException(404)
        return _respond(request, assets[name])

    for path in PAGES:
        router.add_api_route(path, page, methods=METHODS)
    router.add_api_route("/static/{name}", static, methods=METHODS)
    return router


def _respond(request: Request, asset: Asset) -> Response:
    headers = {**HEADERS, "etag": asset.etag}
    if _has_already(request.headers.get("if-none-match", ""), asset.etag):
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers, media_type=asset.media_type)


def _has_already(if_none_match: str, etag: str) -> bool:
    """Whether the header names this file; a proxy that compresses makes the name a weak one."""
    named = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return etag in named or named == ["*"]
