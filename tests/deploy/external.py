"""Servers that somebody else runs, for tests of a house beside them."""

import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from counterpoint.local.postgres import PostgresPasswords, PostgresServer, libpq_env
from counterpoint.local.process import running
from counterpoint.local.settings import local_settings

Configure = Callable[[str, str], None]
"""Sets a variable of the supervisor."""


class OtherPostgres(PostgresServer):
    """A PostgreSQL server with nothing of ours."""

    cluster_options = ()

    async def answers(self) -> bool:
        """Whether it accepts connections."""
        return self.listening()

    @property
    def server(self) -> str:
        """The URL of the server, without a login."""
        return f"postgresql://127.0.0.1:{self.port}"

    def run(self, sql: str, url: str | None = None, fails: str = "") -> str:
        """Run a script of psql, by default as the superuser, and return its output. `fails` is an expected error."""
        program = local_settings().postgres_bin_dir / "psql"
        psql: list[str | Path] = [program, "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "-At"]
        env = libpq_env(url or self.urls.admin)
        done = subprocess.run(psql, input=sql, env=env, capture_output=True, text=True, check=False)
        assert fails in done.stderr if fails else done.returncode == 0, done.stderr
        return str(done.stdout).strip()


@asynccontextmanager
async def postgres_of_version(folder: Path, version: str) -> AsyncIterator[OtherPostgres]:
    """Run a server of the package's other PostgreSQL, `` for 16 and `18`; the programs used beside it stay the same."""
    programs = local_settings().postgres_bin_dir.parents[1] / f"pginstall{version}" / "bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COUNTERPOINT_POSTGRES_BIN_DIR", str(programs))
        local_settings.cache_clear()
        server = other_postgres(folder)
        postgres = await server.__aenter__()
    local_settings.cache_clear()
    try:
        yield postgres
    finally:
        await server.__aexit__(None, None, None)


@asynccontextmanager
async def other_postgres(folder: Path) -> AsyncIterator[OtherPostgres]:
    """Run such a server for the duration of the block."""
    async with running(OtherPostgres(folder, PostgresPasswords())) as server:
        yield server
