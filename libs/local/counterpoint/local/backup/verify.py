"""Verification of a backup: its file, then the audit log of the database that it restores to."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from counterpoint.local.backup.dump import load
from counterpoint.local.backup.opened import OpenedBackup
from counterpoint.local.postgres import PostgresUrls, libpq_env, run_postgres
from counterpoint.local.service import base_environment
from counterpoint.local.settings import local_settings
from counterpoint.proto.errors import Transient

_MIGRATE = "counterpoint.memory.record.migrate"
_CHECK = "counterpoint.memory.audit.check"


async def verify(backup: OpenedBackup) -> list[dict[str, Any]]:
    """Restore the database to a temporary server and return the report of the audit log for each project."""
    async with _temporary(backup) as urls:
        scopes = [json.dumps({"url": urls.memory, "project": project}) for project in await _projects(urls)]
        reports = await _output([sys.executable, "-m", _CHECK], "\n".join(scopes).encode(), None)
        return [json.loads(report) for report in reports.splitlines()]


@asynccontextmanager
async def _temporary(backup: OpenedBackup) -> AsyncIterator[PostgresUrls]:
    with tempfile.TemporaryDirectory(prefix="counterpoint-verify-") as folder:
        async with run_postgres(Path(folder) / "postgres") as server:
            await load(server.urls.owner, backup.database())
            # The backup may be of an earlier release.
            owner = {"COUNTERPOINT_POSTGRES_OWNER_URL": server.urls.owner}
            await _output([sys.executable, "-m", _MIGRATE], b"", base_environment(os.environ) | owner)
            yield server.urls


async def _projects(urls: PostgresUrls) -> list[str]:
    psql = [str(local_settings().postgres_bin_dir / "psql"), "--no-psqlrc", "--tuples-only", "--no-align"]
    query = "SELECT project FROM projects ORDER BY project"
    return (await _output([*psql, f"--command={query}"], b"", libpq_env(urls.owner))).split()


async def _output(command: list[str], content: bytes, env: dict[str, str] | None) -> str:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, env=env)
    output, errors = await process.communicate(content)
    if process.returncode != 0:
        raise Transient(f"{Path(command[0]).name} failed: {errors.decode(errors='replace').strip()[-1000:]}")
    return output.decode()
