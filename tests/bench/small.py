"""A throw-away stack with memory as it is and toys for the other services, and the router's own login on it."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncpg
from chaos.toys import NAMES

from counterpoint.bus import BusSettings, Service
from counterpoint.local.credentials import load_credentials
from counterpoint.local.service import COMMANDS, NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.local.state import read_state

TOYS = Path(__file__).parents[1] / "chaos" / "toys.py"


@dataclass(frozen=True)
class Small:
    """The stack, the router's connection, and a superuser's on the record."""

    stack: Stack
    router: Service
    record: "asyncpg.Connection[asyncpg.Record]"


@asynccontextmanager
async def small(folder: Path) -> AsyncIterator[Small]:
    """One, for the length of the block."""
    toys = {name: (sys.executable, str(TOYS), name) for name in NAMES}
    stack = Stack(folder, http_port=0, commands={**COMMANDS, **toys})
    await stack.start()
    try:
        secrets = load_credentials(folder / "secrets.json", NATS_USERS)
        router = Service(
            "router",
            BusSettings(
                nats_url=stack.endpoints.nats,
                nats_user="router",
                nats_password=secrets.nats["router"],  # type: ignore[arg-type]
            ),
        )
        port = read_state(folder / "state.json").ports["postgres"]
        record = await asyncpg.connect(
            host="127.0.0.1", port=port, user="postgres", password=secrets.postgres.superuser, database="counterpoint"
        )
        await router.connection.open()
        try:
            yield Small(stack, router, record)
        finally:
            await router.connection.close()
            await record.close()
    finally:
        await stack.stop()
