"""Another system's side of the bus: it publishes to its intake, and watches what becomes of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats
import pytest
import pytest_asyncio
from flows.mcp_desk import Desk, McpClient
from flows.mortal_house import MortalHouse, mortal_house
from nats.aio.client import Client
from nats.aio.msg import Msg

from counterpoint.local.stack import Stack

TIMEOUT_S = 30


class Outsider:
    """A publisher's login. `seen` holds every message of `live.tasks.>`, its headers in lower case, in order."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.seen: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self._news = asyncio.Condition()

    async def listen(self) -> None:
        """Begin to watch."""
        await self._client.subscribe("live.tasks.*.>", cb=self._received)
        await self._client.flush()

    async def publish(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Publish and wait until the stream has it."""
        await self._client.jetstream().publish(subject, body, headers=headers)

    async def submit(self, project: str, task: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        """Submit a task as JSON."""
        await self.publish(f"intake.{project}.task", json.dumps(task).encode(), headers)

    async def until(
        self, wanted: Callable[[str, dict[str, Any]], bool], timeout_s: float = TIMEOUT_S
    ) -> dict[str, Any]:
        """The body of the first message that is wanted, by its subject and body."""
        async with asyncio.timeout(timeout_s), self._news:
            while True:
                for subject, _, body in self.seen:
                    if wanted(subject, body):
                        return body
                await self._news.wait()

    async def _received(self, message: Msg) -> None:
        headers = {name.lower(): value for name, value in (message.headers or {}).items()}
        async with self._news:
            self.seen.append((message.subject, headers, json.loads(message.data)))
            self._news.notify_all()


@pytest_asyncio.fixture
async def outsider(stack: Stack) -> AsyncIterator[Outsider]:
    """A publisher of every project, listening."""
    async with publisher(stack) as system:
        yield system


@pytest_asyncio.fixture(scope="session")
async def whole_mortal_house() -> AsyncIterator[MortalHouse]:
    """One house for the modules of the group `mortal house`, each in a project of its own."""
    async with mortal_house() as house:
        yield house


@pytest.fixture
def desk(stack: Stack, project: str) -> Desk:
    """The MCP endpoint in a project of its own."""
    return Desk(stack, project)


@pytest_asyncio.fixture
async def client(desk: Desk) -> AsyncIterator[McpClient]:
    """The administrator's MCP client."""
    async with desk.client() as client:
        yield client


@asynccontextmanager
async def publisher(stack: Stack) -> AsyncIterator[Outsider]:
    """A publisher at a stack, listening."""
    endpoints = stack.endpoints
    user = endpoints.users["publisher"]
    client = await nats.connect(
        endpoints.nats, user=user.user, password=user.password, inbox_prefix=user.inbox_prefix.encode()
    )
    system = Outsider(client)
    await system.listen()
    try:
        yield system
    finally:
        await client.close()
