"""The release of a database: the migrations that it has, and the oldest release whose services it still supports.

A migration expands the schema, so services of earlier releases run on it. One that removes what they use begins with
`-- contracts: NAME`, the migration from which on services do without. It is applied only to a database that had NAME
before, so that the services of that release could be replaced first.
"""

import re
from collections.abc import Mapping, Set
from importlib.resources import files
from typing import TYPE_CHECKING

import asyncpg

from counterpoint.memory.record import functions
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

_CONTRACTS = re.compile(r"\A-- contracts: (\S+)$", re.MULTILINE)
_SQL = load_statements(__package__)


def migrations() -> dict[str, str]:
    """Return the SQL of this release's migrations by name, in order."""
    paths = files(__package__).joinpath("migrations").iterdir()
    named = {path.name: path for path in paths if path.name[0].isdigit()}
    return {name: named[name].read_text() for name in sorted(named)}


def contracts(sql: str) -> str | None:
    """Return the migration from which on services run on the schema after this one; None if all do."""
    found = _CONTRACTS.search(sql)
    return found[1] if found else None


def refuse_skipped(ours: Mapping[str, str], applied: Set[str]) -> None:
    """Raise `Permanent` if a pending migration contracts what the services of the database's release may still use.

    A new database has no services.
    """
    pending = {name: sql for name, sql in ours.items() if name not in applied}
    for name, sql in pending.items():
        needed = contracts(sql)
        if needed is not None and needed not in applied and applied & ours.keys():
            raise _unfit(
                f"a release was skipped: the database is of a release before {needed}, and {name} removes what its"
                f" services use. Upgrade to a release with {needed} and without {name} first, replace all services,"
                " and then upgrade to this one"
            )


def refuse_contracted(ours: Mapping[str, str], oldest: Set[str]) -> None:
    """Raise `Permanent` if a later release has removed what this one uses; `oldest` are the migrations it requires."""
    if missing := sorted(oldest - ours.keys()):
        raise _unfit(
            f"a later release has removed from the database what this one uses: start a release with {missing[-1]}, or"
            " restore a backup of this release"
        )


async def check_release(connection: "Connection") -> None:
    """Check that this release's services run on the database.

    Raises `Transient` as long as it has not been migrated, and `Permanent` if this release is too old for it.
    """
    try:
        rows = await connection.fetch(_SQL["applied_migrations"])
    except (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError, asyncpg.InsufficientPrivilegeError):
        rows = []
    ours, applied = migrations(), {row["name"] for row in rows}
    refuse_contracted(ours, {row["oldest"] for row in rows if row["oldest"]})
    if missing := sorted({*ours, functions.SCHEMA} - applied):
        raise Transient(f"the database lacks {', '.join(missing[:3])}: run the job `migrate` of this release")


def _unfit(problem: str) -> Permanent:
    return Permanent(ErrorCode.RELEASE_UNFIT, (Problem(field="release", problem=problem),))
