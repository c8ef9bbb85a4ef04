"""Framing: a request that states its length twice is refused.

A proxy that believes the other statement would take the rest of it for the request of somebody else.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import PlainTextResponse

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_LENGTHS = {b"content-length", b"transfer-encoding"}


class UnambiguousFraming:
    """An ASGI app whose requests have one length. The connection of another one is closed."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http" and {name for name, _ in scope["headers"]} >= _LENGTHS:
            refusal = PlainTextResponse("Invalid HTTP request received.", 400, {"Connection": "close"})
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)
