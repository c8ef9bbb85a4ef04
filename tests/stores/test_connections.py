"""Connections that the database ends or does not give: what needs one says that it is away, and goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from memory_service.house import House
from query.record_versions import version_of
from structlog.testing import capture_logs

from counterpoint.bus.first_connection import RefusedByServer
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.record.database import Database, Lease, retry_while_transient
from counterpoint.memory.record.owner_connection import LoginWatch
from counterpoint.proto.errors import Away, Permanent

TABLE = """
CREATE TABLE lease AS SELECT '0' AS shard, 0::bigint AS epoch, NULL::text AS holder, now() AS since;
GRANT SELECT, UPDATE ON lease TO counterpoint_memory
"""


class Wire:
    """A way to a database. While one of its connections is cut it does not pass on that the server has hung up."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._pumps: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self._news = asyncio.Condition()
        self._cutting = False

    async def __aenter__(self) -> "Wire":
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        netloc = f"{self._parts.netloc.rpartition(':')[0]}:{self._server.sockets[0].getsockname()[1]}"
        self.url = urlunsplit(self._parts._replace(netloc=netloc))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)

    async def cut(self, house: House, pid: int) -> None:
        """Have the server end a connection while nothing is asked of it."""
        self._cutting = True
        async with house.superuser() as record:
            await record.execute("SELECT pg_terminate_backend($1)", pid)
            async with asyncio.timeout(120), self._news:
                await self._news.wait_for(lambda: not self._cutting)
            # An answer that comes later: the last words of the other connection have been read by then.
            await record.execute("SELECT 1")

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection(self._parts.hostname, self._parts.port)
        self._writers += (writer, forth)
        self._pumps |= {asyncio.create_task(self._pump(back, writer)), asyncio.create_task(self._pump(reader, forth))}

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        if not self._cutting:
            writer.close()
            return
        async with self._news:
            self._cutting = False
            self._news.notify_all()


@asynccontextmanager
async def by_one_connection(url: str) -> AsyncIterator[tuple[Database, int]]:
    """A database, and the process that serves the only connection to it."""
    database = Database(url, pool_size=1, connect_timeout_s=30)
    await database.open()
    try:
        async with database.connection() as connection:
            pid = connection.get_server_pid()
        yield database, pid
    finally:
        await database.close()


async def test_a_connection_that_was_ended_is_away_and_is_not_used_again(house: House) -> None:
    async with Wire(house.urls.memory) as wire, by_one_connection(wire.url) as (database, pid):
        await wire.cut(house, pid)
        with pytest.raises(Away):
            await database.answers()
        await database.answers()


def committer_of(house: House, database: Database) -> Committer:
    """A committer beside that of the house, of which nobody is told."""
    return Committer(
        database,
        house.committer._epoch,
        lambda row, project: None,
        lambda steps, sent: None,
        on_begin=lambda steps: None,
        queue_limit=10,
    )


async def test_the_committer_goes_on_by_another_connection(house: House, project: str) -> None:
    async with Wire(house.urls.memory) as wire, by_one_connection(wire.url) as (database, pid):
        committer = committer_of(house, database)
        applying = asyncio.create_task(committer.run())
        await committer.apply(version_of(project, "a", 1, "restarted"))
        await wire.cut(house, pid)
        with pytest.raises(Away):
            await committer.apply(version_of(project, "a", 2, "waited"))
        await committer.apply(version_of(project, "a", 2, "waited"))
        assert not applying.done()
        applying.cancel()
        await asyncio.gather(applying, return_exceptions=True)


async def test_commits_do_not_wait_for_a_committer_that_has_ended(house: House, project: str) -> None:
    committer = committer_of(house, house.database)
    async with house.superuser() as record, record.transaction():
        await record.execute("INSERT INTO projects (project) VALUES ($1)", project)
        applying = asyncio.create_task(committer.run())
        waiting = [
            asyncio.create_task(committer.apply(version_of(place, f"a-{n}", 1, "restarted")))
            for place in (project, f"{project}-other")
            for n in range(3)
        ]
        async with asyncio.timeout(120):
            while committer.waiting != 3:  # noqa: ASYNC110 - the first three wait for the row, on the server
                await asyncio.sleep(0.01)
        applying.cancel()
        async with asyncio.timeout(120):
            told = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(error) for error in told} == {Away}
    with pytest.raises(Away):
        await committer.apply(version_of(project, "b", 1, "restarted"))
    await asyncio.gather(applying, return_exceptions=True)


@asynccontextmanager
async def lease_of_its_own(house: House, name: str) -> AsyncIterator[str]:
    """Yield the URL of a database with a lease that is not the house's."""
    async with house.superuser() as record:
        await record.execute(f"CREATE DATABASE {name}")
        try:
            owner = await asyncpg.connect(house.urls.admin.removesuffix("/postgres") + f"/{name}")
            await owner.execute(TABLE)
            await owner.close()
            yield house.urls.memory.rpartition("/")[0] + f"/{name}"
        finally:
            await record.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_a_lease_keeps_its_epoch_until_another_process_has_held_it(house: House) -> None:
    """Commits sent under it may still be on their way."""
    async with lease_of_its_own(house, "ended") as url, Wire(url) as wire, house.superuser() as record:
        ours, theirs = Lease(wire.url, "ours"), Lease(url, "theirs")
        first, sure = await ours.acquire(0.01), ours.valid_acquisition
        watching = asyncio.create_task(ours.watch())
        await wire.cut(house, await record.fetchval("SELECT pid FROM pg_stat_activity WHERE datname = 'ended'"))
        async with asyncio.timeout(120):
            while ours.valid_acquisition in (None, sure):
                assert not watching.done()
                await asyncio.sleep(0.01)
        assert ours.epoch == first
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await ours.release()
        assert await theirs.acquire(0.01) == first + 1
        await theirs.release()
        assert await ours.acquire(0.01) == first + 2
        await ours.release()


async def test_no_free_connection_is_waited_for(house: House) -> None:
    async with lease_of_its_own(house, "crowded") as url, house.superuser() as record:
        await record.execute("ALTER DATABASE crowded CONNECTION LIMIT 0")
        with pytest.raises(Away):
            await Database(url, pool_size=1, connect_timeout_s=30).open()
        lease = Lease(url, "ours")
        with capture_logs() as said:
            acquiring = asyncio.create_task(lease.acquire(0.01))
            async with asyncio.timeout(120):
                while not said and not acquiring.done():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            await record.execute("ALTER DATABASE crowded CONNECTION LIMIT -1")
            assert await acquiring == 1
        assert said[0]["event"] == "lease.waiting"
        await lease.release()


async def test_a_refused_login_is_reported_to_whoever_checks_it(house: House) -> None:
    parts = urlsplit(house.urls.memory)
    url = urlunsplit(parts._replace(netloc=f"{parts.username}:wrong@{parts.hostname}:{parts.port}"))
    database, lease = Database(url, pool_size=1, connect_timeout_s=30), Lease(url, "ours")
    login = LoginWatch(url, refused_s=0)
    watching = asyncio.create_task(login.run())
    assert login.missing() is None
    database.on_refusal.append(login.refused)
    with pytest.raises(Away, match="InvalidPasswordError"):
        await database.open()
    assert login.missing() == "login"
    with pytest.raises(RefusedByServer, match="counterpoint sql roles"):
        await watching
    refused = asyncio.Event()
    lease.on_refusal.append(refused.set)
    acquiring = asyncio.create_task(lease.acquire(0.01))
    await refused.wait()
    assert not acquiring.done()
    acquiring.cancel()


async def test_a_login_that_is_accepted_again_is_no_refusal(house: House) -> None:
    login = LoginWatch(house.urls.memory, refused_s=0)
    login.refused()
    watching = asyncio.create_task(login.run())
    async with asyncio.timeout(120):
        while login.missing():
            assert not watching.done()
            await asyncio.sleep(0.01)
    watching.cancel()


async def test_a_transient_failure_at_startup_is_retried_until_it_works() -> None:
    tries = 0

    async def begun() -> int:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Away("the database is away")
        return tries

    assert await retry_while_transient(begun) == 3

    async def broken() -> None:
        raise Permanent("invalid", ())

    with pytest.raises(Permanent):
        await retry_while_transient(broken)
