"""Looks for needles in all that a house keeps: every column of every table, and every file under its folder."""

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import asyncpg
import nats
import re2

from counterpoint.bus.streams import consumer_specs
from counterpoint.guard.policy import policy
from counterpoint.local.credentials import load_credentials
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.service import NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.proto.subjects import inbox_prefix

Survivors = dict[str, set[str]]
"""From a needle to the tables and files that hold it."""
_PART_BYTES = 8 * 1024 * 1024
_TABLES = """
SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) AS name FROM pg_tables
WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
"""


class Needles:
    """All needles as one pattern over bytes."""

    def __init__(self, needles: Iterable[str]) -> None:
        self._needles = tuple(needles)
        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1
        options.max_mem = 256 * 1024 * 1024
        self._pattern = re2.compile(b"|".join(re.escape(needle.encode()) for needle in self._needles), options)
        self.longest = max(map(len, self._needles))

    def within(self, data: bytes) -> Iterator[str]:
        """Those that `data` holds."""
        for match in self._pattern.finditer(data):
            yield match[0].decode()


async def quiet(stack: Stack, tries: int = 3000) -> None:
    """Wait until every consumer has handled all that there is for it."""
    passwords = load_credentials(stack.data_dir / "secrets.json", NATS_USERS).nats
    user = "provisioner"
    client = await nats.connect(
        stack.endpoints.nats, user=user, password=passwords[user], inbox_prefix=inbox_prefix(user).encode()
    )
    try:
        stream = client.jetstream()
        calm = 0
        for _ in range(tries):
            infos = [await stream.consumer_info(spec.stream, spec.durable) for spec in consumer_specs(policy())]
            calm = calm + 1 if not any((i.num_pending or 0) + (i.num_ack_pending or 0) for i in infos) else 0
            if calm == 3:
                return
            await asyncio.sleep(0.1)
    finally:
        await client.close()
    raise TimeoutError([(i.stream_name, i.name, i.num_pending, i.num_ack_pending) for i in infos])


async def in_tables(stack: Stack, needles: Needles) -> Survivors:
    """What the database holds, whoever may see it."""
    found: Survivors = defaultdict(set)
    passwords = load_credentials(stack.data_dir / "secrets.json", NATS_USERS).postgres
    dsn = stack.endpoints.engines["postgres"].dsn
    assert dsn is not None
    server = dsn.rpartition("@")[2].partition("/")[0]
    urls = PostgresUrls.of(f"postgresql://postgres:{passwords.superuser}@{server}/postgres", passwords)
    connection = await asyncpg.connect(urls.admin.removesuffix("/postgres") + "/counterpoint")
    try:
        for table in [row["name"] for row in await connection.fetch(_TABLES)]:
            for row in await connection.fetch(f"SELECT * FROM {table}"):
                for column, value in row.items():
                    data = value if isinstance(value, bytes) else str(value).encode()
                    for needle in needles.within(data):
                        found[needle].add(f"{table}.{column}")
    finally:
        await connection.close()
    return found


def in_files(folder: Path, needles: Needles, but: tuple[str, ...]) -> Survivors:
    """What files hold, but for those whose path within `folder` has one of the parts `but`."""
    found: Survivors = defaultdict(set)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or path.is_symlink() or any(part in name for part in but):
            continue
        with path.open("rb") as file:
            before = b""
            while part := file.read(_PART_BYTES):
                for needle in needles.within(before + part):
                    found[needle].add(name)
                before = part[-needles.longest :]
    return found
