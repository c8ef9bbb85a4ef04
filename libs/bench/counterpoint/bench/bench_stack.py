"""A temporary stack: the real memory service, stubs for the other services, and the router's login."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from pydantic import SecretStr

from counterpoint.bench.stub_services import NAMES
from counterpoint.bus import BusSettings, Service
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import COMMANDS, NATS_USERS, JobName, ServiceName
from counterpoint.local.stack import Stack
from counterpoint.local.state_file import read_state


@dataclass(frozen=True)
class BenchStack:
    """A running stack, a bus connection as the router, and a PostgreSQL connection as the superuser."""

    stack: Stack
    router: Service
    postgres: "asyncpg.Connection[asyncpg.Record]"


@asynccontextmanager
async def bench_stack(folder: Path) -> AsyncIterator[BenchStack]:
    """Run a stack in `folder` for the length of the block."""
    stubs: dict[ServiceName | JobName, tuple[str, ...]] = {
        name: (sys.executable, "-m", "counterpoint.bench.stub_services", name) for name in NAMES
    }
    stack = Stack(folder, http_port=0, commands={**COMMANDS, **stubs})
    await stack.start()
    try:
        secrets = load_credentials(folder / "secrets.json", NATS_USERS)
        router = Service(
            "router",
            BusSettings(
                nats_url=stack.endpoints.nats,
                nats_user="router",
                nats_password=SecretStr(secrets.nats["router"]),
            ),
        )
        port = read_state(folder / "state.json").ports["postgres"]
        postgres = await asyncpg.connect(
            host="127.0.0.1", port=port, user="postgres", password=secrets.postgres.superuser, database="counterpoint"
        )
        await router.connection.open()
        try:
            yield BenchStack(stack, router, postgres)
        finally:
            await router.connection.close()
            await postgres.close()
    finally:
        await stack.stop()
