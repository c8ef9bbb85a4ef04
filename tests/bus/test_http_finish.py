"""An HTTP server that finishes: requests under way are answered, and new ones wait for the next server."""

import asyncio
import os

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from counterpoint.bus.health import HttpServer, http_server, listening_socket, serve


class SlowApp:
    """An application whose answer waits for `go`."""

    def __init__(self, name: str) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        self._name = name

    def server(self, listener_fd: int) -> HttpServer:
        """Return a server on an inherited socket."""

        async def answer(_: Request) -> Response:
            self.begun.set()
            await self.go.wait()
            return PlainTextResponse(self._name)

        return http_server(Starlette(routes=[Route("/", answer)]), "", 0, listener_fd=listener_fd)[0]


async def test_a_request_under_way_is_answered_and_a_later_one_by_the_next_server() -> None:
    held = listening_socket("127.0.0.1", 0)
    url = f"http://127.0.0.1:{held.getsockname()[1]}/"
    first, second = SlowApp("first"), SlowApp("second")
    async with httpx.AsyncClient(timeout=20, trust_env=False) as client:
        server = first.server(os.dup(held.fileno()))
        serving = asyncio.create_task(serve(server))
        under_way = asyncio.create_task(client.get(url))
        await first.begun.wait()
        finished = asyncio.create_task(server.finish())
        while any(each.is_serving() for each in server.servers):  # noqa: ASYNC110
            await asyncio.sleep(0)
        later = asyncio.create_task(client.get(url))
        first.go.set()
        await finished
        await serving
        assert (await under_way).text == "first"
        assert not later.done()
        second.go.set()
        next_server = second.server(os.dup(held.fileno()))
        next_serving = asyncio.create_task(serve(next_server))
        assert (await later).text == "second"
        await next_server.finish()
        await next_serving
    held.close()


async def test_a_server_that_never_started_has_nothing_to_finish() -> None:
    server = SlowApp("idle").server(listening_socket("127.0.0.1", 0).detach())
    await server.finish()
    server.listener.close()
