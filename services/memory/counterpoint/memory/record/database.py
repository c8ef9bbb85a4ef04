"""PostgreSQL as memory uses it: connections, the fence of a project, and the lease of the one active process."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import asyncpg
import structlog
from pgvector.asyncpg import register_vector
from pydantic_core import from_json

from counterpoint.memory.record import functions
from counterpoint.proto.errors import Away, Transient

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]


T = TypeVar("T")

log = structlog.get_logger()

AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    OSError,
    TimeoutError,
)
"""Errors that asyncpg raises when the server is away or going, or has no connection left.

A connection that the server has ended while it was idle fails with an internal error for as long as its socket is open;
a pool does not use it again.
"""

PLANNED_ONCE = {"plan_cache_mode": "force_generic_plan"}
"""For statements that take arrays: planned anew for every length of them, planning is most of their time."""

_AGAIN_S = 0.2
_BEAT_S = 0.5
_CONFIRMED_S = 2.0
"""Validity of a lease after its last confirmation, in seconds; the server releases it later than that."""
_LEASE_KEY = 0x636F756E746572
_NEXT_EPOCH = """
UPDATE lease SET epoch = epoch + (holder IS DISTINCT FROM $1 OR epoch <> $2)::int, holder = $1, since = now()
WHERE shard = '0' RETURNING epoch
"""
"""The epoch stays when nobody else has held the lease meanwhile: commits that are under way are still ours."""


async def patiently(work: Callable[[], Awaitable[T]]) -> T:
    """Do what nothing goes on without: again for as long as it fails with `Transient`."""
    while True:
        try:
            return await work()
        except Transient as away:
            log.warning("database.waiting", reason=str(away))
            await asyncio.sleep(_AGAIN_S)


async def _leave(connection: "Connection") -> None:
    """Nothing to reset: every setting is local to its transaction, and an open one the pool has rolled back."""


class Database:
    """A pool of connections under memory's login, which owns no table."""

    def __init__(
        self, url: str, *, pool_size: int, connect_timeout_s: float, settings: Mapping[str, str] | None = None
    ) -> None:
        self.url = url
        self._pool_size = pool_size
        self._connect_timeout_s = connect_timeout_s
        self._settings = {"jit": "off", "search_path": functions.SEARCH_PATH, **(settings or {})}
        self._pool: Pool | None = None
        self._fences: dict[int, str] = {}

    async def open(self) -> None:
        """Connect. Raises `Away`."""
        try:
            await self._connect()
        except AWAY as error:
            raise Away(f"the database is unavailable: {type(error).__name__}") from error

    async def _connect(self) -> None:
        self._pool = await asyncpg.create_pool(
            self.url,
            min_size=1,
            max_size=self._pool_size,
            init=self._prepare,
            timeout=self._connect_timeout_s,
            command_timeout=30,
            server_settings=self._settings,
            reset=_leave,
        )

    async def _prepare(self, connection: "Connection") -> None:
        self._fences.pop(connection.get_server_pid(), None)
        await register_vector(connection)
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=from_json, schema="pg_catalog")

    async def close(self) -> None:
        """Close all connections, waiting a little for those in use."""
        if self._pool is not None:
            try:
                await asyncio.wait_for(self._pool.close(), 5)
            except TimeoutError:
                self._pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["Connection"]:
        """A connection of the pool, for what belongs to no project. Raises `Away` when PostgreSQL is away."""
        if self._pool is None:
            raise Away("the database is not open")
        try:
            async with self._pool.acquire() as connection:
                yield connection  # type: ignore[misc]
        except asyncpg.DataError:
            raise
        except AWAY as error:
            raise Away(f"the database is unavailable: {type(error).__name__}") from error

    async def answers(self) -> None:
        """Ask for nothing. Raises `Away`."""
        async with self.connection() as connection:
            await connection.execute("SELECT 1")

    @asynccontextmanager
    async def reading(self, project: str) -> AsyncIterator["Connection"]:
        """For one statement: only the rows of `project`, and what is shared, exist.

        The fence stays with the connection, so that the next reader of the same project finds it in its place.
        """
        async with self.connection() as connection:
            pid = connection.get_server_pid()
            if self._fences.get(pid) != project:
                self._fences.pop(pid, None)
                await connection.execute("SELECT set_config('counterpoint.project', $1, false)", project)
                self._fences[pid] = project
            yield connection

    @asynccontextmanager
    async def snapshot(self, project: str) -> AsyncIterator["Connection"]:
        """For several statements that see the same: as `reading`, in one read-only transaction."""
        async with (
            self.reading(project) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield connection

    @asynccontextmanager
    async def writing(self, project: str) -> AsyncIterator["Connection"]:
        """A transaction in which only the rows of `project` exist."""
        async with self.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('counterpoint.project', $1, true)", project)
            yield connection


class Lease:
    """One memory process is active: it holds a lock that ends with its connection, and an epoch that commits check."""

    def __init__(self, url: str, holder: str) -> None:
        self._url = url
        self._holder = holder
        self._connection: Connection | None = None
        self._confirmed = -_CONFIRMED_S
        self._acquired = 0
        self.epoch = 0

    @property
    def sure(self) -> int | None:
        """Count of acquisitions, when no other process can have been active since; else None."""
        held = self._connection is not None and not self._connection.is_closed()
        return self._acquired if held and time.monotonic() - self._confirmed < _CONFIRMED_S else None

    async def acquire(self, retry_s: float) -> int:
        """Wait until the lease is ours; returns its epoch, the same as before when nobody else has held it since."""
        while True:
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await asyncpg.connect(
                        self._url,
                        timeout=5,
                        server_settings={"tcp_keepalives_idle": "2", "tcp_keepalives_interval": "1"},
                    )
                asked = time.monotonic()
                if await self._connection.fetchval("SELECT pg_try_advisory_lock($1)", _LEASE_KEY):
                    self.epoch = await self._connection.fetchval(_NEXT_EPOCH, self._holder, self.epoch)
                    self._confirmed = asked
                    self._acquired += 1
                    log.info("lease.acquired", epoch=self.epoch)
                    return self.epoch
            except AWAY as error:
                log.warning("lease.waiting", reason=type(error).__name__)
            await asyncio.sleep(retry_s)

    async def watch(self) -> None:
        """Take the lease again when the connection that holds it breaks."""
        lost = asyncio.Event()
        while True:
            if self._connection is None or self._connection.is_closed():
                log.warning("lease.lost", epoch=self.epoch)
                await self.acquire(0.2)
            lost.clear()
            assert self._connection is not None
            self._connection.add_termination_listener(lambda _: lost.set())
            while not lost.is_set():
                await self._confirm(self._connection)
                with suppress(TimeoutError):
                    await asyncio.wait_for(lost.wait(), _BEAT_S)

    async def _confirm(self, connection: "Connection") -> None:
        asked = time.monotonic()
        try:
            await connection.execute("SELECT 1", timeout=_CONFIRMED_S)
        except AWAY as error:
            log.warning("lease.unconfirmed", reason=type(error).__name__)
            if isinstance(error, asyncpg.InternalClientError):
                connection.terminate()
        else:
            self._confirmed = asked

    async def release(self) -> None:
        """Give the lease back."""
        if self._connection is not None and not self._connection.is_closed():
            await self._connection.close(timeout=2)
