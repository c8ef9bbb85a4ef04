"""The router's HTTP API on a port of its own, in front of a house in memory."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from agents.router_house import NOW, PROJECT, House
from pydantic import SecretStr

from counterpoint.bus.fair_limiter import FairLimiter
from counterpoint.bus.health import http_server, serve
from counterpoint.proto.tasks import Task
from counterpoint.router.api.application import HttpApi
from counterpoint.router.api.context import RouterResources
from counterpoint.router.authentication import Authenticator
from counterpoint.router.hub import Hub
from counterpoint.router.intake.running_tasks import RunningTasks
from counterpoint.router.settings import RouterSettings

TIMEOUT_S = 60.0


@dataclass
class RunningFront:
    """A running front: its house, its hub, and a client as the principal `me`, a person with every role."""

    app: HttpApi
    house: House
    hub: Hub
    limiter: FairLimiter
    url: str
    me: httpx.AsyncClient

    @asynccontextmanager
    async def as_principal(self, name: str, *roles: str, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
        """A client as another principal."""
        async with client(self.url, self.house.token_of(name, *roles, **more)) as other:
            yield other


def client(url: str, token: str | None) -> httpx.AsyncClient:
    """A client with a token, in the project of the tests."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.AsyncClient(
        base_url=url, headers=headers, params={"project": PROJECT}, timeout=TIMEOUT_S, trust_env=False
    )


@asynccontextmanager
async def listening() -> AsyncIterator[tuple[HttpApi, str]]:
    """An application that listens, and its URL. It has no desk yet."""
    app = HttpApi()
    server, port = http_server(app, "127.0.0.1", 0)
    serving = asyncio.create_task(serve(server))
    try:
        yield app, f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        await serving


@asynccontextmanager
async def running(app: HttpApi, url: str, **more: Any) -> AsyncIterator[RunningFront]:
    """The application with a desk of its own; `more` are settings. It looks by itself only when they say so."""
    given: dict[str, Any] = {"nats_user": "router", "nats_password": SecretStr("x"), "poll_s": 60.0} | more
    settings = RouterSettings(**given)
    house, hub = House(), Hub()
    house.heard = hub.on_message
    authenticator, running_tasks = (
        Authenticator(house.of_principal, settings.principal_cache_s),
        RunningTasks(settings.tasks_under_way),
    )
    app.state.resources = RouterResources(house.of_principal, authenticator, hub, running_tasks, settings)
    async with client(url, house.token_of("me")) as me:
        yield RunningFront(app, house, hub, running_tasks.limiter, url, me)
    hub.close()


@dataclass(frozen=True)
class Event:
    """A server-sent event; `id` is None for one without."""

    id: int | None
    name: str
    data: Any


class Events:
    """Events and comments of an open stream, one by one."""

    def __init__(self, response: httpx.Response) -> None:
        self._lines = response.aiter_lines()

    async def next(self) -> Event | str | None:
        """The next event or comment, None when the stream has ended. Raises `TimeoutError` when nothing comes."""
        return await asyncio.wait_for(self._next(), TIMEOUT_S)

    async def events(self, count: int) -> list[Event]:
        """The next `count` events, comments left out."""
        found: list[Event] = []
        while len(found) < count:
            one = await self.next()
            assert one is not None, "the stream has ended"
            if isinstance(one, Event):
                found.append(one)
        return found

    async def _next(self) -> Event | str | None:
        lines: list[str] = []
        async for line in self._lines:
            if line:
                lines.append(line)
            elif lines:
                return _event(lines)
        return None


def _event(lines: list[str]) -> Event | str:
    if all(line.startswith(":") for line in lines):
        return lines[0]
    fields = dict(_fields(lines))
    seq = int(fields["id"]) if "id" in fields else None
    return Event(seq, fields.get("event", "message"), json.loads(fields["data"]))


def _fields(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, _, value = line.partition(": ")
        yield name, value


def put_task(front: RunningFront, task_id: str, state: str, **more: Any) -> None:
    """The manager's record of a task."""
    body = {"task_id": task_id, "project": PROJECT, "kind": "question", "state": state, "description": "x"}
    task = Task.model_validate(body | {"submitted_by": "me", "submitted_at": NOW} | more)
    front.house.put("tasks", task_id, task.model_dump(mode="json", exclude_none=True))
