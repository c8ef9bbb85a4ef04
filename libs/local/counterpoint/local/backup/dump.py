"""`pg_dump` and `pg_restore` of our database.

A dump is loaded by `psql`, from the script that `pg_restore` makes of it: `pg_restore` itself would set a parameter
that servers before PostgreSQL 17 do not have.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress

from counterpoint.local.backup.archive import PART_BYTES
from counterpoint.local.postgres import libpq_env
from counterpoint.local.settings import local_settings
from counterpoint.proto.errors import ErrorCode, Permanent, Problem

_DUMP = ("--format=custom", "--compress=gzip:1", "--no-password")
_SCRIPT = ("--file=-", "--no-owner", "--no-comments", "--no-password")
_LOAD = ("--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--output=/dev/null", "--no-password")
_SINCE_17 = b"SET transaction_timeout = 0;\n"
_HEAD_LINES = 20
"""Lines of a script, without data, that have the parameters."""
_WITHOUT_TLS = "SSL support is not compiled in"


async def dump(url: str, write: Callable[[bytes], None]) -> None:
    """Pass a consistent dump of a database to `write`, in parts. Raises `Permanent` if it fails."""
    async with _running("pg_dump", url, *_DUMP) as process:
        assert process.stdout is not None
        while part := await _part(process.stdout):
            write(part)


async def load(url: str, parts: Iterable[bytes]) -> None:
    """Load a dump into an empty database, completely or not at all. Raises `Permanent` if it fails.

    Whatever is killed meanwhile, the script then ends without its COMMIT.
    """
    async with _running("psql", url, *_LOAD) as process:
        assert process.stdin is not None
        # If it has ended already, its error follows.
        with suppress(ConnectionResetError, BrokenPipeError):
            process.stdin.write(b"BEGIN;\n")
            await _write_script(url, parts, process.stdin)
            process.stdin.write(b"COMMIT;\n")
            await process.stdin.drain()
        process.stdin.close()


async def _write_script(url: str, parts: Iterable[bytes], output: asyncio.StreamWriter) -> None:
    async with _running("pg_restore", url, *_SCRIPT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        feeding = asyncio.create_task(_feed(parts, process.stdin))
        try:
            for _ in range(_HEAD_LINES):
                line = await process.stdout.readline()
                output.write(b"" if line == _SINCE_17 else line)
            while part := await _part(process.stdout):
                output.write(part)
                await output.drain()
            await feeding
        finally:
            feeding.cancel()


async def _feed(parts: Iterable[bytes], stdin: asyncio.StreamWriter) -> None:
    try:
        with suppress(ConnectionResetError, BrokenPipeError):
            for part in parts:
                stdin.write(part)
                await stdin.drain()
    finally:
        stdin.close()


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
