"""Seeds: the first records of a new database, the administrator and the provider index, written by commits."""

import hashlib
from datetime import UTC, datetime

import structlog

from counterpoint.guard.policy import Policy
from counterpoint.memory.access import diode
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.planner import plan_commit
from counterpoint.memory.provenance.read_sets import ReadSet
from counterpoint.memory.record.database import Database
from counterpoint.memory.record.plan import SYSTEM
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.memory.record.stamps import Provenance
from counterpoint.proto.ids import foreign_id
from counterpoint.proto.memory import Commit, Origin, Write

log = structlog.get_logger()

_SQL = load_statements(__package__)


async def plant(
    database: Database, policy: Policy, committer: Committer, project: str, writes: tuple[Write, ...]
) -> None:
    """Write the missing ones of some records of one store; records that were changed or deleted stay so."""
    store = writes[0].store
    place = SYSTEM if policy.stores[store].system else project
    async with database.reading(place) as connection:
        known = {row["id"] for row in await connection.fetch(_SQL["ids_of_store"], place, store)}
    missing = tuple(write for write in writes if write.id not in known)
    if not missing:
        return
    now = datetime.now(UTC)
    digest = hashlib.sha256("".join(write.id for write in missing).encode()).hexdigest()
    origin = Origin(message_id=foreign_id("seed", digest, 0), project=project)
    grant = diode.own(policy, project, origin.message_id, now)
    prepared = plan_commit(
        policy,
        grant,
        origin,
        Commit(step="seed", writes=missing),
        now=now,
        caused_by=Provenance(),
        memories=ReadSet(),
        task_version=None,
    )
    await committer.apply(prepared)
    log.info("seed.planted", store=store, records=len(missing))
