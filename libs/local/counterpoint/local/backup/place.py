"""The database of a data folder: of a running house, of a server of its owner, or started for the purpose."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from counterpoint.local.credentials import Credentials
from counterpoint.local.endpoints import read_endpoints
from counterpoint.local.lock import acquire_lock, is_locked
from counterpoint.local.postgres import PostgresServer, PostgresUrls
from counterpoint.local.process import running, stop_leftovers
from counterpoint.local.settings import local_settings
from counterpoint.local.state_file import StateFile, read_state
from counterpoint.proto.errors import Transient


@asynccontextmanager
async def database(data_dir: Path, credentials: Credentials) -> AsyncIterator[PostgresUrls]:
    """Yield the URLs of the database, and start the embedded server if nothing runs. Raises `Transient`."""
    external = local_settings().postgres_url
    if external is not None:
        yield PostgresUrls.of(external, credentials.postgres)
    elif is_locked(data_dir):
        if "postgres" not in read_endpoints(data_dir).engines:
            raise Transient(f"the stack on {data_dir} uses another server: set COUNTERPOINT_POSTGRES_URL as for `up`")
        port = read_state(data_dir / "state.json").ports["postgres"]
        yield PostgresUrls.of(f"postgresql://127.0.0.1:{port}", credentials.postgres)
    else:
        async with embedded(data_dir, credentials) as urls:
            yield urls


@asynccontextmanager
async def embedded(data_dir: Path, credentials: Credentials) -> AsyncIterator[PostgresUrls]:
    """Run the embedded server of a data folder alone, and lock the folder meanwhile."""
    lock = acquire_lock(data_dir)
    try:
        state = StateFile(data_dir / "state.json")
        await stop_leftovers(state)
        log = data_dir / "logs" / "postgres.log"
        async with running(PostgresServer(data_dir / "postgres", credentials.postgres, state, log)) as server:
            yield server.urls
    finally:
        os.close(lock)
