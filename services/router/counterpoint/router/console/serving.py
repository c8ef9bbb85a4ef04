"""The console's files over HTTP: `/` and `/console/...`. They contain no data, so they need no token."""

import asyncio
import importlib
from typing import Any

from fastapi import APIRouter, Request, Response

from counterpoint.proto.errors import ErrorCode, Permanent, Problem

router = APIRouter(include_in_schema=False)

_ASSETS = "counterpoint.router.console.assets"
_INDEX = "index.html"
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@router.api_route("/", methods=["GET", "HEAD"], response_model=None)
async def index(request: Request) -> Response:
    """Return the page."""
    return await _serve(request, _INDEX)


@router.api_route("/console/{name:path}", methods=["GET", "HEAD"], response_model=None)
async def asset(request: Request, name: str) -> Response:
    """Return a file of the page. Raises `Permanent` `not_found`."""
    return await _serve(request, name)


async def _serve(request: Request, name: str) -> Response:
    assets: Any = await asyncio.to_thread(importlib.import_module, _ASSETS)
    if name not in assets.paths():
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="path", problem="is not a file of the console"),))
    found = await asyncio.to_thread(assets.load, name)
    headers = {**_HEADERS, "ETag": found.etag}
    if found.etag in request.headers.get("if-none-match", "").replace("W/", "").replace(" ", "").split(","):
        return Response(status_code=304, headers=headers)
    accepts_gzip = "gzip" in request.headers.get("accept-encoding", "")
    if accepts_gzip:
        headers["Content-Encoding"] = "gzip"
    return Response(found.compressed if accepts_gzip else found.content, headers=headers, media_type=found.media_type)
