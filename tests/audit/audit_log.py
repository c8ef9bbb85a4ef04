"""An audit log of a test's own: a memory on a fresh PostgreSQL with an exported file, and what may be done to them."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Coroutine, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from memory_service.databases import fresh_database
from memory_service.house import AUDIT_KEY, House, task_body
from memory_service.leaves import store_leaves_as_text

from counterpoint.local.postgres import PostgresUrls
from counterpoint.memory.audit.export import CheckpointFile
from counterpoint.memory.audit.note import Checkpoint
from counterpoint.memory.audit.packed_leaf import leaf_text
from counterpoint.proto.memory import Write

PROJECT = "orders"
TABLES = ("records", "history", "messages", "inbox", "read_sets", "projects", "pending", "audit", "audit_head",
          "audit_tiles", "audit_checkpoints")  # fmt: skip
_WRITTEN = """
SELECT string_agg(attname, ', ') FROM pg_attribute
WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
"""


class Log:
    """The log of one house, and its enemies."""

    def __init__(self, house: House, file: CheckpointFile) -> None:
        self.house = house
        self.file = file

    async def story(self, task: str) -> None:
        """Some commits about a task, and a refusal."""
        await self.house.delegated(PROJECT, task)
        second = Write(store="tasks", id=task, body=task_body(task, n=2), expect=1)
        await self.house.apply(
            "manager", self.house.delivery(await self.house.reported(PROJECT, task)), writes=(second,)
        )
        await self.house.refusal("router", self.house.standing(PROJECT, task), "store", writes=(second,))
        submission = Write(store="submissions", id=f"of-{task}", body={"n": 1})
        await self.house.apply("router", self.house.standing(PROJECT), writes=(submission,))

    async def sign(self) -> None:
        """As if a minute had passed."""
        await self.house.sequencer.once(sign=True)

    async def verify(self, **asked: Any) -> dict[str, Any]:
        """The report."""
        return await self.house.verify(PROJECT, **asked)

    async def signed(self) -> list[Checkpoint]:
        """Return the checkpoints in the exported file."""
        return list(AUDIT_KEY.read(await self.file.read()))

    async def run(self, *statements: str) -> None:
        """As a superuser."""
        async with self.house.superuser() as connection:
            for statement in statements:
                await connection.execute(statement)

    async def as_text(self) -> None:
        """Store all leaves as text, as earlier releases did."""
        async with self.house.superuser() as connection:
            await store_leaves_as_text(connection)

    async def rows(self, query: str) -> list[Any]:
        """As a superuser."""
        async with self.house.superuser() as connection:
            return list(await connection.fetch(query))

    async def back_up(self) -> None:
        """Copy all there is."""
        async with self.house.superuser() as connection:
            await connection.execute("DROP SCHEMA IF EXISTS backup CASCADE; CREATE SCHEMA backup")
            for table in TABLES:
                columns = await connection.fetchval(_WRITTEN, table)
                await connection.execute(f"CREATE TABLE backup.{table} AS SELECT {columns} FROM {table}")

    async def restore(self) -> None:
        """Put the copy in the place of all there is."""
        async with self.house.superuser() as connection, connection.transaction():
            for table in TABLES:
                columns = await connection.fetchval(_WRITTEN, table)
                await connection.execute(f"DELETE FROM {table}")
                await connection.execute(f"INSERT INTO {table} ({columns}) SELECT * FROM backup.{table}")

    async def rehash(self) -> None:
        """Make all hashes those of the content, in every place in the database."""
        async with self.house.superuser() as connection, connection.transaction():
            rows = await connection.fetch("SELECT * FROM audit WHERE position IS NOT NULL ORDER BY position")
            last: dict[tuple[str, str], bytes] = {}
            for row in rows:
                key = (row["project"], row["task_id"])
                previous = last.get(key) if row["task_id"] else None
                said = row["salt"] + (previous or b"") + (leaf_text(row["body"], row["packed"]) or "").encode()
                last[key] = leaf = hashlib.sha256(said).digest()
                await connection.execute(
                    "UPDATE audit SET previous = $2, leaf = $3 WHERE arrival = $1", row["arrival"], previous, leaf
                )
            await connection.execute("DELETE FROM audit_tiles")
            await connection.execute("DELETE FROM audit_checkpoints")


@asynccontextmanager
async def a_log(server: PostgresUrls, folder: Path) -> AsyncIterator[Log]:
    """One in a database of its own, for the length of the block."""
    file = CheckpointFile(folder / "exported")
    house = House(await fresh_database(server), copies=(file,))
    await house.open()
    try:
        yield Log(house, file)
    finally:
        await house.close()


class Cut(Awaitable[bool]):
    """Work that is cancelled when it waits for the `after`th time; whether it was, once it has ended."""

    def __init__(self, work: Coroutine[Any, Any, Any], after: int) -> None:
        self._work = work
        self._after = after

    def __await__(self) -> Generator[Any, Any, bool]:
        steps = self._work.__await__()
        waited, cut = 0, False
        while True:
            try:
                if waited == self._after:
                    cut = True
                    waits = steps.throw(asyncio.CancelledError())
                else:
                    waits = steps.send(None)
            except StopIteration:
                return cut
            except asyncio.CancelledError:
                return True
            waited += 1
            yield waits
