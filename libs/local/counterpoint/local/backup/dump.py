"""`pg_dump` and `pg_restore` of our database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from counterpoint.local.backup.archive import PART_BYTES
from counterpoint.local.postgres import libpq_env
from counterpoint.local.settings import local_settings
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

_DUMP = ("--format=custom", "--compress=gzip:1", "--no-password")
_RESTORE = ("--no-owner", "--no-comments", "--single-transaction", "--exit-on-error", "--no-password")
_WITHOUT_TLS = "SSL support is not compiled in"


async def dump(url: str, write: Callable[[bytes], None]) -> None:
    """Pass a consistent dump of a database to `write`, in parts. Raises `Permanent` if it fails."""
    async with _running("pg_dump", url, *_DUMP) as process:
        assert process.stdout is not None
        while part := await _part(process.stdout):
            write(part)


async def load(url: str, parts: Iterable[bytes]) -> None:
    """Load a dump into an empty database, completely or not at all. Raises `Permanent` if it fails."""
    async with _running("pg_restore", url, *_RESTORE, f"--dbname={libpq_env(url)['PGDATABASE']}") as process:
        assert process.stdin is not None
        with suppress(ConnectionResetError, BrokenPipeError):
            for part in parts:
                process.stdin.write(part)
                await process.stdin.drain()
        process.stdin.close()


@asynccontextmanager
async def _running(name: str, url: str, *options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a program of PostgreSQL; it has ended without an error when the block ends."""
    process = await asyncio.create_subprocess_exec(
        str(local_settings().postgres_bin_dir / name),
        *options,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=libpq_env(url),
    )
    assert process.stderr is not None
    errors = asyncio.create_task(process.stderr.read())
    try:
        yield process
        code = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        text = (await errors).decode(errors="replace").strip()
    if code != 0:
        raise _failed(name, text)


async def _part(stream: asyncio.StreamReader) -> bytes:
    """Return the next bytes of a stream, `PART_BYTES` of them unless it ends."""
    try:
        return await stream.readexactly(PART_BYTES)
    except asyncio.IncompleteReadError as end:
        return end.partial


def _failed(name: str, text: str) -> Permanent:
    remedy = f"; name the folder of a {name} with TLS by COUNTERPOINT_POSTGRES_BIN_DIR" if _WITHOUT_TLS in text else ""
    return Permanent(ErrorCode.REFUSED, (Problem(field=name, problem=f"{text or 'ended early'}{remedy}"),))
