"""Checks of a PostgreSQL server before anything is created on it: `python -m counterpoint.memory.record.preflight`.

With `COUNTERPOINT_POSTGRES_ADMIN_URL` a superuser will create roles and database; otherwise they exist already. With
`--empty` there is a finding about the content of the database.
"""

import asyncio
import os
import ssl
import sys
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import asyncpg

from counterpoint.bus.check_result import CheckResult, Level, clock_result, print_results
from counterpoint.memory.record.installation import OTHER, REMEDY, owner_of
from counterpoint.memory.record.sql_files import load_statements

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    Connection = asyncpg.Connection[asyncpg.Record]

CHECK = "postgres"
OLDEST, OLDEST_VECTOR = 16, (0, 8)
"""The oldest supported PostgreSQL, and the oldest pgvector: `hnsw.iterative_scan` needs it."""
_SQL = load_statements(__package__)
_ROLES = "have an administrator run the SQL of `counterpoint sql roles`"
_TIMEOUT_S = 5
UNREACHABLE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, ValueError)
"""Errors of a client that was not let in."""


async def examine(
    owner_url: str, memory_url: str, admin_url: str | None, installation: str | None, empty: bool = False
) -> list[CheckResult]:
    """Check the logins, versions, rights, extension and clock of a server, and whose the database is."""
    if admin_url is not None:
        return await _as_administrator(admin_url, owner_url, installation, empty)
    findings: list[CheckResult] = []
    async with _connected(owner_url, findings) as owner:
        if owner is not None:
            facts, ahead_s = await _facts(owner)
            rights = _rights(facts)
            findings += [*_server(facts), rights, _vector(facts, created=True)]
            findings.append(clock_result(f"{CHECK} clock", ahead_s))
            if rights.level == Level.OK:
                findings += await _installation(owner, installation, empty)
    if findings[0].level != Level.OK:
        return findings
    async with _connected(memory_url, findings) as memory:
        if memory is not None:
            findings += await _memory_role(memory)
    return findings


async def _as_administrator(admin_url: str, owner_url: str, installation: str | None, empty: bool) -> list[CheckResult]:
    findings: list[CheckResult] = []
    async with _connected(admin_url, findings) as admin:
        if admin is None:
            return findings
        facts, ahead_s = await _facts(admin)
        findings += [*_server(facts), _vector(facts, created=False), clock_result(f"{CHECK} clock", ahead_s)]
        if not facts["superuser"]:
            remedy = f"{_ROLES}, and leave the login out of COUNTERPOINT_POSTGRES_URL"
            findings.append(
                CheckResult.failed(f"{CHECK} roles", "this login is no superuser and cannot create roles", remedy)
            )
        exists = await admin.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", _database(owner_url))
    if exists:
        ours = urlsplit(admin_url)._replace(path=f"/{_database(owner_url)}").geturl()
        async with _connected(ours, findings) as inside:
            if inside is not None:
                findings += await _installation(inside, installation, empty)
    return findings


@asynccontextmanager
async def _connected(url: str, findings: list[CheckResult]) -> "AsyncIterator[Connection | None]":
    """Connect, or add the reason for which that failed and yield None."""
    try:
        connection = await asyncpg.connect(url, timeout=_TIMEOUT_S)
    except UNREACHABLE as error:
        findings.append(unreachable(url, error))
        yield None
        return
    try:
        yield connection
    finally:
        await connection.close(timeout=_TIMEOUT_S)


def unreachable(url: str, error: BaseException) -> CheckResult:
    """Return the finding about a server that did not let a client in, with what to do."""
    parts = urlsplit(url)
    where = f"{parts.hostname}:{parts.port or 5432}, login {parts.username}: {str(error) or type(error).__name__}"
    match error:
        case asyncpg.InvalidAuthorizationSpecificationError():
            remedy = (
                f"{_ROLES} again: it sets the passwords of this data folder; or use the data folder of that database"
            )
        case asyncpg.InvalidCatalogNameError() | asyncpg.InsufficientPrivilegeError():
            remedy = _ROLES
        case ssl.SSLError() | FileNotFoundError():
            remedy = "append ?sslmode=verify-full&sslrootcert=/PATH/CA.pem to COUNTERPOINT_POSTGRES_URL"
        case _:
            remedy = "start the server, or correct COUNTERPOINT_POSTGRES_URL"
    return CheckResult.failed(CHECK, where, remedy)


async def _facts(connection: "Connection") -> tuple[Any, float]:
    """Return what the server says of itself, and how many seconds its clock is ahead."""
    sent = time.time()
    facts = await connection.fetchrow(_SQL["server_facts"])
    assert facts is not None
    return facts, facts["now"].timestamp() - (sent + time.time()) / 2


def _server(facts: Any) -> list[CheckResult]:
    version = facts["version"] // 10_000
    detail = f"PostgreSQL {version}.{facts['version'] % 10_000}, {facts['encoding']}"
    if version < OLDEST:
        return [CheckResult.failed(CHECK, detail, f"upgrade to PostgreSQL {OLDEST} or later")]
    if facts["standby"]:
        return [CheckResult.failed(CHECK, f"{detail}, a standby that accepts no writes", "name the primary server")]
    if facts["encoding"] != "UTF8":
        return [CheckResult.failed(CHECK, detail, "create the database with ENCODING 'UTF8'")]
    return [CheckResult.ok(CHECK, detail)]


def _rights(facts: Any) -> CheckResult:
    check = f"{CHECK} rights"
    missing = [name for name in ("may_create_schemas", "may_create_tables") if not facts[name]]
    if missing:
        return CheckResult.failed(check, f"counterpoint_owner lacks rights: {', '.join(missing)}", _ROLES)
    return CheckResult.ok(check, "counterpoint_owner may create schemas and tables")


def _vector(facts: Any, created: bool) -> CheckResult:
    """Check pgvector: that it is created in this database, or at least that it can be."""
    check, version = f"{CHECK} pgvector", facts["vector"] or (None if created else facts["vector_available"])
    if version is None and facts["vector_available"] is None:
        return CheckResult.failed(
            check, "the server has no pgvector", "install it on the server, package postgresql-VERSION-pgvector"
        )
    if version is None:
        remedy = "have a superuser run `CREATE EXTENSION vector` in the database; `counterpoint sql roles` has it too"
        return CheckResult.failed(check, "pgvector is installed but not created in the database", remedy)
    if tuple(map(int, version.split(".")[:2])) < OLDEST_VECTOR:
        return CheckResult.failed(
            check, f"pgvector {version}", "upgrade it to 0.8 or later, then ALTER EXTENSION vector UPDATE"
        )
    return CheckResult.ok(check, f"pgvector {version}")


async def _installation(connection: "Connection", installation: str | None, empty: bool) -> list[CheckResult]:
    """Compare the installation that the database belongs to; with `empty` also look for tables."""
    found = await owner_of(connection) if installation else None
    if found not in (None, installation):
        return [CheckResult.failed(f"{CHECK} database", OTHER, REMEDY)]
    return [await _content(connection, found)] if empty else []


async def _content(connection: "Connection", installation: str | None) -> CheckResult:
    check, tables = f"{CHECK} content", await connection.fetchval(_SQL["count_tables"])
    if not tables:
        return CheckResult.ok(check, "the database is empty")
    if installation is not None:
        return CheckResult.warning(check, "the database has the content of this installation", "name another one")
    return CheckResult.failed(check, f"the database has {tables} tables", "name an empty one")


async def _memory_role(connection: "Connection") -> list[CheckResult]:
    """Check that memory's login is fenced by row-level security."""
    facts = await connection.fetchrow(_SQL["role_facts"])
    assert facts is not None
    check = f"{CHECK} rights of memory"
    excess = [name for name in ("superuser", "bypasses", "owner") if facts[name]]
    if excess:
        return [CheckResult.failed(check, f"counterpoint_memory has too many rights: {', '.join(excess)}", _ROLES)]
    return [CheckResult.ok(check, "counterpoint_memory is neither owner nor superuser")]


def _database(url: str) -> str:
    return urlsplit(url).path.strip("/")


def main() -> None:
    """Examine the server that the environment variables name."""
    environment = os.environ
    print_results(
        asyncio.run(
            examine(
                environment["COUNTERPOINT_POSTGRES_OWNER_URL"],
                environment["COUNTERPOINT_POSTGRES_URL"],
                environment.get("COUNTERPOINT_POSTGRES_ADMIN_URL"),
                environment.get("COUNTERPOINT_INSTALLATION"),
                empty="--empty" in sys.argv[1:],
            )
        )
    )


if __name__ == "__main__":
    main()
