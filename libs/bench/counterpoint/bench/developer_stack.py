"""A temporary stack whose developer is this process."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import httpx
from pydantic import SecretStr

from counterpoint.bus import BusSettings, Service
from counterpoint.cli.demo.provider import MODEL
from counterpoint.client import Gateway, Memory
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import COMMANDS, NATS_USERS, JobName, ServiceName
from counterpoint.local.stack import Stack
from counterpoint.local.state_file import read_state
from counterpoint.proto.memory import Commit
from counterpoint.proto.tasks import TaskDelegated

PROJECT = "bench"

Work = Callable[[TaskDelegated, Memory], Awaitable[None]]


class PostgresLogin(NamedTuple):
    """The superuser's login."""

    host: str
    port: int
    user: str
    password: str
    database: str = "counterpoint"


@dataclass
class DeveloperStack:
    """A stack whose developer is this process. `work` handles the next deliveries."""

    stack: Stack
    http: httpx.AsyncClient
    postgres: "asyncpg.Connection[asyncpg.Record]"
    postgres_login: PostgresLogin
    gateway: Gateway
    gateway_url: str
    manager_login: BusSettings
    work: Work | None = None

    async def deliver(self, task: dict[str, Any], work: Work) -> None:
        """Submit a task, and wait until its delivery to the developer was worked on. Raises what `work` raises."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def worked(message: TaskDelegated, memory: Memory) -> None:
            try:
                await work(message, memory)
            except BaseException as error:
                done.set_exception(error)
                raise
            else:
                done.set_result(None)

        self.work = worked
        (await self.http.post("/v1/tasks", json=task)).raise_for_status()
        await done

    async def handle(self, message: TaskDelegated, memory: Memory) -> Commit:
        """Handle a delivery."""
        if self.work is not None:
            await self.work(message, memory)
        return Commit()


@asynccontextmanager
async def developer_stack(folder: Path) -> AsyncIterator[DeveloperStack]:
    """Run a stack in `folder`, with this process as its developer."""
    idle: dict[ServiceName | JobName, tuple[str, ...]] = {
        "developer": (*COMMANDS["developer"][:1], "-m", "counterpoint.bench.stub_services", "developer", "idle")
    }
    stack = Stack(folder, http_port=0, commands={**COMMANDS, **idle})
    await stack.start()
    try:
        secrets, ports = load_credentials(folder / "secrets.json", NATS_USERS), read_state(folder / "state.json").ports
        login, manager_login = (
            BusSettings(nats_url=stack.endpoints.nats, nats_user=name, nats_password=SecretStr(secrets.nats[name]))
            for name in ("developer", "manager")
        )
        developer = Service("developer", login)
        url = f"http://127.0.0.1:{ports['gateway']}"
        gateway = Gateway(url, model=MODEL)
        postgres_login = PostgresLogin("127.0.0.1", ports["postgres"], "postgres", secrets.postgres.superuser)
        headers = {"Authorization": f"Bearer {stack.endpoints.token}"}
        async with httpx.AsyncClient(
            base_url=stack.endpoints.http, headers=headers, params={"project": PROJECT}, timeout=120
        ) as http:
            postgres = await asyncpg.connect(**postgres_login._asdict())
            of = DeveloperStack(stack, http, postgres, postgres_login, gateway, url, manager_login)
            developer.on(TaskDelegated)(of.handle)
            living = asyncio.create_task(developer.live())
            try:
                yield of
            finally:
                developer.stop()
                await asyncio.gather(living, return_exceptions=True)
                await gateway.close()
                await postgres.close()
    finally:
        await stack.stop()
