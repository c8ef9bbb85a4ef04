"""Looks for needles in all that a house keeps: every column, message of a stream, and file of its folder."""

import asyncio
import base64
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote_to_bytes

import asyncpg
import nats
import re2
from nats.js import JetStreamContext
from nats.js.errors import NotFoundError

from counterpoint.bus.streams import consumer_specs, stream_specs
from counterpoint.guard.policy import policy
from counterpoint.local.credentials import load_credentials
from counterpoint.local.postgres import PostgresUrls
from counterpoint.local.service import NATS_USERS
from counterpoint.local.stack import Stack
from counterpoint.memory.audit.packed_leaf import leaf_text
from counterpoint.memory.record.answers import answers_text
from counterpoint.proto.subjects import inbox_prefix

Survivors = dict[str, set[str]]
"""From a needle to the tables and files that hold it."""
_MESSAGES = 200
"""Messages of a stream that are asked for at a time."""
_PART_BYTES = 8 * 1024 * 1024
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]{16,}")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
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

    def within_decoded(self, data: bytes) -> Iterator[str]:
        """Those that `data` holds as they are, as part of a URL, or in base64."""
        yield from self.within(data)
        yield from self.within(unquote_to_bytes(data))
        for run in _BASE64.findall(data):
            plain = run.translate(_URL_SAFE)
            for start in range(4):
                inner = plain[start:]
                yield from self.within(base64.b64decode(inner[: len(inner) // 4 * 4]))


@asynccontextmanager
async def _provisioner(stack: Stack) -> AsyncIterator[JetStreamContext]:
    passwords = load_credentials(stack.data_dir / "secrets.json", NATS_USERS).nats
    user = "provisioner"
    client = await nats.connect(
        stack.endpoints.nats, user=user, password=passwords[user], inbox_prefix=inbox_prefix(user).encode()
    )
    try:
        yield client.jetstream()
    finally:
        await client.close()


async def quiet(stack: Stack, tries: int = 3000) -> None:
    """Wait until every consumer has handled all that there is for it."""
    async with _provisioner(stack) as stream:
        calm = 0
        for _ in range(tries):
            infos = [await stream.consumer_info(spec.stream, spec.durable) for spec in consumer_specs(policy())]
            calm = calm + 1 if not any((i.num_pending or 0) + (i.num_ack_pending or 0) for i in infos) else 0
            if calm == 3:
                return
            await asyncio.sleep(0.1)
    raise TimeoutError([(i.stream_name, i.name, i.num_pending, i.num_ack_pending) for i in infos])


async def in_streams(stack: Stack, needles: Needles) -> Survivors:
    """Find needles in the streams of the bus, whose files are encrypted."""
    found: Survivors = defaultdict(set)
    async with _provisioner(stack) as stream:
        for spec in stream_specs():
            state = (await stream.stream_info(spec.name)).state
            for start in range(max(1, state.first_seq), state.last_seq + 1, _MESSAGES):
                numbers = range(start, min(start + _MESSAGES, state.last_seq + 1))
                for message in await asyncio.gather(*(_message(stream, spec.name, number) for number in numbers)):
                    for needle in needles.within(message):
                        found[needle].add(spec.name)
    return found


async def _message(stream: JetStreamContext, name: str, number: int) -> bytes:
    try:
        message = await stream.get_msg(name, number)
    except NotFoundError:
        return b""
    return f"{message.subject}\n{message.headers}\n".encode() + (message.data or b"")


async def in_tables(stack: Stack, needles: Needles) -> Survivors:
    """Find needles in the whole database, whoever may see them."""
    passwords = load_credentials(stack.data_dir / "secrets.json", NATS_USERS).postgres
    dsn = stack.endpoints.engines["postgres"].dsn
    assert dsn is not None
    server = dsn.rpartition("@")[2].partition("/")[0]
    urls = PostgresUrls.of(f"postgresql://postgres:{passwords.superuser}@{server}/postgres", passwords)
    connection = await asyncpg.connect(urls.admin.removesuffix("/postgres") + "/counterpoint")
    try:
        return await in_database(connection, needles)
    finally:
        await connection.close()


async def in_database(connection: "asyncpg.Connection[asyncpg.Record]", needles: Needles) -> Survivors:
    """Find needles in all tables, as a superuser sees them."""
    found: Survivors = defaultdict(set)
    for table in [row["name"] for row in await connection.fetch(_TABLES)]:
        for row in await connection.fetch(f"SELECT * FROM {table}"):
            for column, value in row.items():
                for needle in needles.within(_unpacked(table, column, value)):
                    found[needle].add(f"{table}.{column}")
    return found


def _unpacked(table: str, column: str, value: object) -> bytes:
    """A value of a column as it is read, whatever its form."""
    if isinstance(value, bytes) and column == "packed":
        text = leaf_text(None, value) if table.endswith("audit") else answers_text({"packed": value, "answers": None})
        return (text or "").encode()
    return value if isinstance(value, bytes) else str(value).encode()


def in_files(folder: Path, needles: Needles) -> Survivors:
    """Find needles in the files under a folder."""
    found: Survivors = defaultdict(set)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or path.is_symlink():
            continue
        with path.open("rb") as file:
            before = b""
            while part := file.read(_PART_BYTES):
                for needle in needles.within(before + part):
                    found[needle].add(name)
                before = part[-needles.longest :]
    return found
