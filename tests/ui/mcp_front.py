"""The MCP endpoint on a port of its own, in front of a house in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agents.router_house import PROJECT, House
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from pydantic import SecretStr

from counterpoint.bus.health import http_server, serve
from counterpoint.router.api.application import HttpApi
from counterpoint.router.api.context import RouterResources
from counterpoint.router.authentication import Authenticator
from counterpoint.router.hub import Hub
from counterpoint.router.intake.running_tasks import RunningTasks
from counterpoint.router.mcp.endpoint import McpEndpoint
from counterpoint.router.settings import RouterSettings

McpClient = Client[Any]


@dataclass
class McpFront:
    """A running endpoint. Its clients are the principal `me`, a person with every role."""

    house: House
    endpoint: McpEndpoint
    url: str

    @asynccontextmanager
    async def client(self, token: str | None = None, **options: Any) -> AsyncIterator[McpClient]:
        """A connected client of the project."""
        transport = StreamableHttpTransport(
            f"{self.url}/mcp?project={PROJECT}", auth=token or self.house.token_of("me")
        )
        async with Client(transport, **{"mode": "2026-07-28"} | options) as client:
            yield client


@asynccontextmanager
async def mcp_front(**more: Any) -> AsyncIterator[McpFront]:
    """An endpoint with settings of its own."""
    given: dict[str, Any] = {"nats_user": "router", "nats_password": SecretStr("x"), "poll_s": 60.0} | more
    settings = RouterSettings(**given)
    house, hub = House(), Hub()
    house.heard = hub.on_message
    authenticator = Authenticator(house.of_principal, settings.principal_cache_s)
    running_tasks = RunningTasks(settings.tasks_under_way)
    resources = RouterResources(house.of_principal, authenticator, hub, running_tasks, settings)
    endpoint = McpEndpoint(HttpApi(resources), resources)
    server, port = http_server(endpoint, "127.0.0.1", 0)
    serving = asyncio.create_task(serve(server))
    try:
        yield McpFront(house, endpoint, f"http://127.0.0.1:{port}")
    finally:
        hub.close()
        await endpoint.close()
        server.should_exit = True
        await serving
