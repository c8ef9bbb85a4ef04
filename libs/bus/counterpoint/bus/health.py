"""Liveness, readiness and metrics of a service, on a port of its own and without a token."""

import socket
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import uvicorn
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from counterpoint.bus.impatient import Impatient


class Server(uvicorn.Server):
    """An HTTP server that leaves signals to the service it is part of."""

    def capture_signals(self) -> Any:
        return nullcontext()


def http_server(app: Any, host: str, port: int) -> tuple[Server, int]:
    """A server for an ASGI app, bound; and its port, which the system chose when `port` is 0."""
    listener = socket.create_server((host, port), backlog=512)
    config = uvicorn.Config(
        app, http=Impatient, log_config=None, lifespan="off", access_log=False, timeout_graceful_shutdown=3
    )
    server = Server(config)
    server.config.load()
    server.listeners = [listener]  # type: ignore[attr-defined]
    return server, listener.getsockname()[1]


async def serve(server: Server) -> None:
    """Serve until `should_exit` is set, or cancelled; the port is free then, and the loop has forgotten it."""
    try:
        await server.serve(sockets=server.listeners)  # type: ignore[attr-defined]
    finally:
        for serving in getattr(server, "servers", ()):
            serving.close()
        for listener in server.listeners:  # type: ignore[attr-defined]
            listener.close()


def health_app(reasons: Callable[[], tuple[str, ...]], settings: Mapping[str, Any]) -> Starlette:
    """`/livez`, `/readyz` (503 with the reasons why not), `/metrics` and `/settings`, the settings in force."""

    async def livez(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def readyz(_: Request) -> Response:
        missing = reasons()
        return JSONResponse({"ready": not missing, "waiting_for": list(missing)}, 503 if missing else 200)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)

    async def in_force(_: Request) -> Response:
        return JSONResponse(dict(settings))

    endpoints = {"/livez": livez, "/readyz": readyz, "/metrics": metrics, "/settings": in_force}
    return Starlette(routes=[Route(path, endpoint) for path, endpoint in endpoints.items()])
