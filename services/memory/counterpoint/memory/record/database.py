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
from counterpoint.memory.record.projects import all_projects, set_project
from counterpoint.memory.record.session import apply_settings
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import Away, Transient

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
    Pool = asyncpg.Pool[asyncpg.Record]


T = TypeVar("T")

log = structlog.get_logger()

_REFUSALS = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
AWAY = (
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    OSError,
    TimeoutError,
    *_REFUSALS,
)
"""Errors of asyncpg when the server is away or stopping, has no connection left, or refuses a new one.

A connection that the server has ended while it was idle fails with an internal error as long as its socket is open; a
pool does not use it again.
"""

PLANNED_ONCE = {"plan_cache_mode": "force_generic_plan"}
"""Settings for statements that take arrays: a plan for every length of them would take most of their time."""

_RETRY_S = 0.2
_CONFIRM_EVERY_S = 0.5
_VALID_S = 2.0
"""Validity of a lease after its last confirmation, in seconds; the server releases it later than that."""
_KEEPALIVES = {"tcp_keepalives_idle": "2", "tcp_keepalives_interval": "1"}
_LEASE_KEY = 0x636F756E746572

_SQL = load_statements(__package__)


def is_refusal(error: BaseException) -> bool:
    """Whether the server refuses the login or has no such database. A pooler refuses by the code of a broken
    protocol."""
    return isinstance(error, _REFUSALS) or "authentication failed" in str(error)


async def retry_while_transient(work: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `work`, repeated as long as it raises `Transient`; for steps that nothing can continue
    without."""
    while True:
        try:
            return await work()
        except Transient as error:
            log.warning("database.waiting", reason=str(error))
            await asyncio.sleep(_RETRY_S)


async def _keep_session(connection: "Connection") -> None:
    """Reset nothing: every setting is local to its transaction, and the pool has rolled back an open one."""


class Database:
    """A pool of connections under memory's login, which owns no table. `on_refusal` is called when the server refuses
    a new one."""

    def __init__(
        self, url: str, *, pool_size: int, connect_timeout_s: float, settings: Mapping[str, str] | None = None
    ) -> None:
        self.url = url
        self._pool_size = pool_size
        self._connect_timeout_s = connect_timeout_s
        self._settings = {"jit": "off", "search_path": functions.SEARCH_PATH, **(settings or {})}
        self.on_refusal: list[Callable[[], None]] = []
        self._pool: Pool | None = None
        self._project_of: dict[int, str] = {}

    async def open(self) -> None:
        """Connect. Raises `Away`."""
        try:
            await self._connect()
        except AWAY as error:
            raise self._away(error) from error

    async def _connect(self) -> None:
        self._pool = await asyncpg.create_pool(
            self.url,
            min_size=1,
            max_size=self._pool_size,
            init=self._prepare,
            timeout=self._connect_timeout_s,
            command_timeout=30,
            reset=_keep_session,
        )

    async def _prepare(self, connection: "Connection") -> None:
        self._project_of.pop(connection.get_server_pid(), None)
        await apply_settings(connection, self._settings)
        await register_vector(connection)
        await connection.set_type_codec("jsonb", encoder=json.dumps, decoder=from_json, schema="pg_catalog")

    async def close(self) -> None:
        """Close all connections; wait up to five seconds for those in use."""
        if self._pool is not None:
            try:
                await asyncio.wait_for(self._pool.close(), 5)
            except TimeoutError:
                self._pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["Connection"]:
        """Take a connection of the pool that is bound to no project. Raises `Away` if PostgreSQL is away."""
        if self._pool is None:
            raise Away("the database is not open")
        try:
            async with self._pool.acquire() as connection:
                yield connection  # type: ignore[misc]
        except asyncpg.DataError:
            raise
        except AWAY as error:
            raise self._away(error) from error

    def _away(self, error: Exception) -> Away:
        if is_refusal(error):
            for refused in self.on_refusal:
                refused()
        return Away(f"the database is unavailable: {type(error).__name__}")

    async def projects(self) -> list[str]:
        """Return the names of all projects, sorted. Raises `Away`."""
        async with self.connection() as connection:
            return await all_projects(connection)

    async def answers(self) -> None:
        """Check that the server answers. Raises `Away`."""
        async with self.connection() as connection:
            await connection.execute("SELECT 1")

    @asynccontextmanager
    async def reading(self, project: str) -> AsyncIterator["Connection"]:
        """Take a connection for one statement that sees only the rows of `project` and the shared ones.

        The setting stays with the connection, so that the next reader of the same project need not repeat it.
        """
        async with self.connection() as connection:
            pid = connection.get_server_pid()
            if self._project_of.get(pid) != project:
                self._project_of.pop(pid, None)
                await set_project(connection, project, in_transaction=False)
                self._project_of[pid] = project
            yield connection

    @asynccontextmanager
    async def snapshot(self, project: str) -> AsyncIterator["Connection"]:
        """Take a connection for several statements on the same snapshot: as `reading`, in one read-only transaction."""
        async with (
            self.reading(project) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            yield connection

    @asynccontextmanager
    async def writing(self, project: str) -> AsyncIterator["Connection"]:
        """Open a transaction that sees only the rows of `project`."""
        async with self.connection() as connection, connection.transaction():
            await set_project(connection, project, in_transaction=True)
            yield connection


class Lease:
    """Lease of the one active memory process: a lock that ends with its connection, and an epoch that commits check.
    `on_refusal` is called when the server refuses a new connection."""

    def __init__(self, url: str, holder: str) -> None:
        self.on_refusal: list[Callable[[], None]] = []
        self._url = url
        self._holder = holder
        self._connection: Connection | None = None
        self._confirmed = -_VALID_S
        self._acquired = 0
        self.epoch = 0

    @property
    def valid_acquisition(self) -> int | None:
        """Return the number of the current acquisition; None once another process may have been active."""
        connected = self._connection is not None and not self._connection.is_closed()
        return self._acquired if connected and time.monotonic() - self._confirmed < _VALID_S else None

    async def acquire(self, retry_s: float) -> int:
        """Wait for the lease; return its epoch, the same as before if no other process has held the lease since."""
        while True:
            try:
                if self._connection is None or self._connection.is_closed():
                    self._connection = await asyncpg.connect(self._url, timeout=5)
                    await apply_settings(self._connection, _KEEPALIVES)
                sent_at = time.monotonic()
                if await self._connection.fetchval("SELECT pg_try_advisory_lock($1)", _LEASE_KEY):
                    self.epoch = await self._connection.fetchval(_SQL["next_epoch"], self._holder, self.epoch)
                    self._confirmed = sent_at
                    self._acquired += 1
                    log.info("lease.acquired", epoch=self.epoch)
                    return self.epoch
            except AWAY as error:
                log.warning("lease.waiting", reason=type(error).__name__)
                if is_refusal(error):
                    for refused in self.on_refusal:
                        refused()
            await asyncio.sleep(retry_s)

    async def watch(self) -> None:
        """Take the lease again when its connection breaks."""
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
                    await asyncio.wait_for(lost.wait(), _CONFIRM_EVERY_S)

    async def _confirm(self, connection: "Connection") -> None:
        sent_at = time.monotonic()
        try:
            await connection.execute("SELECT 1", timeout=_VALID_S)
        except AWAY as error:
            log.warning("lease.unconfirmed", reason=type(error).__name__)
            if isinstance(error, asyncpg.InternalClientError):
                connection.terminate()
        else:
            self._confirmed = sent_at

    async def release(self) -> None:
        """Give the lease back."""
        if self._connection is not None and not self._connection.is_closed():
            await self._connection.close(timeout=2)
