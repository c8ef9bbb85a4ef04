"""The cookie that carries a browser's token, and the origins from which it is accepted."""

from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from counterpoint.proto.errors import Denied, ErrorCode

PATH = "/v1"
MAX_AGE_S = 30 * 86_400
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_OWN_SITE = "same-origin"


def cookie_token(request: Request) -> str | None:
    """Return the token in the cookie of a request, None without one.

    Raises `Denied` `origin` for a request of another origin, and for a change whose origin is not known.
    """
    token = request.cookies.get(_name(request))
    if token is not None:
        require_own_origin(request)
    return token


def require_own_origin(request: Request) -> None:
    """Raise `Denied` `origin` unless a browser sent the request from a page of this server.

    Browsers send `Sec-Fetch-Site` to https and to the own machine, and `Origin` with every change.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        allowed = site == _OWN_SITE or (site == "none" and request.method in _SAFE_METHODS)
    elif origin is not None:
        allowed = urlsplit(origin).netloc == request.headers.get("host")
    else:
        allowed = request.method in _SAFE_METHODS
    if not allowed:
        raise Denied(ErrorCode.ORIGIN, "a page of this server as its origin, or a bearer token instead of the cookie")


def set_cookie(request: Request, response: Response, token: str) -> None:
    """Keep a token in the browser: not readable by scripts, sent to the API of this site alone, over TLS if it is."""
    response.set_cookie(
        _name(request),
        token,
        max_age=MAX_AGE_S,
        path=PATH,
        secure=_is_secure(request),
        httponly=True,
        samesite="strict",
    )


def delete_cookie(request: Request, response: Response) -> None:
    """Remove the token from the browser."""
    response.delete_cookie(_name(request), path=PATH, secure=_is_secure(request), httponly=True, samesite="strict")


def _is_secure(request: Request) -> bool:
    """Return whether the browser speaks TLS, perhaps with a proxy in front of this server."""
    return request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://")


def _name(request: Request) -> str:
    """Return the cookie's name. Browsers share cookies between ports of a host, so the name contains the port."""
    _, _, port = request.headers.get("host", "").rpartition(":")
    return f"counterpoint_{port}" if port.isdecimal() else "counterpoint"
