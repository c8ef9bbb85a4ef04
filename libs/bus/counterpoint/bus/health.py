"""HTTP serving, and a service's health port: liveness, readiness and metrics, without a token."""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from email.utils import formatdate
from pathlib import Path
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from uvicorn.server import ServerState

from counterpoint.bus.framing import UnambiguousFraming
from counterpoint.bus.listening import listening_socket
from counterpoint.bus.request_timeouts import RequestTimeoutProtocol


class DatedState(ServerState):
    """The shared state of an HTTP server, whose default headers have the time of the response."""

    def __init__(self, others: list[tuple[bytes, bytes]]) -> None:
        self._others = others
        super().__init__()

    @property
    def default_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers of every response."""
        return [(b"date", formatdate(usegmt=True).encode()), *self._others]

    @default_headers.setter
    def default_headers(self, _: list[tuple[bytes, bytes]]) -> None:
        """Ignore those that were made once."""


class HttpServer(uvicorn.Server):
    """An HTTP server on a bound socket that leaves signals to the service it is part of.

    At rest it does nothing: the loop of its base class wakes up ten times a second for a date and a flag.
    """

    def __init__(self, config: uvicorn.Config, listener: socket.socket) -> None:
        self._finishing = asyncio.Event()
        super().__init__(config)
        self.server_state = DatedState(config.encoded_headers)
        self.listener = listener
        self.closed = asyncio.Event()

    @property
    def should_exit(self) -> bool:
        """Whether it is to stop."""
        return self._finishing.is_set()

    @should_exit.setter
    def should_exit(self, stops: bool) -> None:
        if stops:
            self._finishing.set()

    async def main_loop(self) -> None:
        """Wait until it is to stop."""
        await self._finishing.wait()

    def capture_signals(self) -> Any:
        return nullcontext()

    async def finish(self) -> None:
        """Accept no more connections, and wait until the requests under way have their responses."""
        self.should_exit = True
        if self.started:
            await self.closed.wait()


def http_server(
    app: Any,
    host: str,
    port: int,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    finish_s: int = 3,
    listener_fd: int | None = None,
) -> tuple[HttpServer, int]:
    """Return a bound server for an ASGI app and its port, which the system chooses when `port` is 0.

    With a certificate chain and its private key, PEM files, it speaks TLS only. Requests under way have `finish_s`
    seconds when it stops. With `listener_fd` it serves a socket that the process has inherited.
    """
    listener = listening_socket(host, port) if listener_fd is None else socket.socket(fileno=listener_fd)
    config = uvicorn.Config(
        UnambiguousFraming(app),
        http=RequestTimeoutProtocol,
        log_config=None,
        lifespan="off",
        access_log=False,
        timeout_graceful_shutdown=finish_s,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        # A browser takes no reply for another type than the one that it states.
        headers=[("X-Content-Type-Options", "nosniff")],
    )
    config.load()
    return HttpServer(config, listener), listener.getsockname()[1]


async def serve(server: HttpServer) -> None:
    """Serve until `should_exit` is set or the task is cancelled; then close the port."""
    try:
        await server.serve(sockets=[server.listener])
    finally:
        for serving in getattr(server, "servers", ()):
            serving.close()
        server.listener.close()
        server.closed.set()


def health_app(reasons: Callable[[], tuple[str, ...]], settings: Mapping[str, Any]) -> Starlette:
    """Return the app of `/livez`, `/readyz` (503 with reasons), `/metrics` and `/settings` (effective settings).

    `/readyz?exclude=lease` does not wait for that reason: a standby has everything but the lease.
    """

    async def livez(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(request: Request) -> Response:
        excluded = request.query_params.getlist("exclude")
        missing = [reason for reason in reasons() if reason not in excluded]
        return JSONResponse({"ready": not missing, "waiting_for": missing}, 503 if missing else 200)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    async def effective(_: Request) -> Response:
        return JSONResponse(dict(settings))

    endpoints = {"/livez": livez, "/readyz": readyz, "/metrics": metrics, "/settings": effective}
    return Starlette(routes=[Route(path, endpoint) for path, endpoint in endpoints.items()])
