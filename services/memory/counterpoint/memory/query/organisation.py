"""Limits of the organisation: over several projects, as far as a reader may see their use."""

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from counterpoint.memory.record.database import Database
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.limits import StoredOrganisationLimit
from counterpoint.proto.memory import OrganisationLimitUse, OrganisationReport, ProjectUse

_SQL = load_statements(__package__)


async def organisation_limits(
    database: Database, project: str, now: datetime, *, everywhere: bool
) -> OrganisationReport:
    """Return the limits that cover a project with its own use of them; with `everywhere` all, and the use by each."""
    async with database.reading(project) as connection:
        rows = await connection.fetch(_SQL["organisation_use"], None if everywhere else project, now)
    limits = [_use(list(group)) for _, group in groupby(rows, itemgetter("limit_id"))]
    if not everywhere:
        limits = [_of_project(each, project) for each in limits]
    return OrganisationReport(everywhere=everywhere, limits=tuple(limits))


def _use(rows: Sequence[Any]) -> OrganisationLimitUse:
    limit = StoredOrganisationLimit.model_validate(rows[0]["limited"])
    uses = tuple(
        ProjectUse(project=row["calling_project"], usd=row["usd"], tokens=int(row["tokens"]))
        for row in rows
        if row["calling_project"] is not None
    )
    used_up = (limit.usd is not None and sum(each.usd for each in uses) >= limit.usd) or (
        limit.tokens is not None and sum(each.tokens for each in uses) >= limit.tokens
    )
    return OrganisationLimitUse(limit=limit, reached=used_up or rows[0]["refused_at"] is not None, uses=uses)


def _of_project(found: OrganisationLimitUse, project: str) -> OrganisationLimitUse:
    """Return what a reader of one project may see: neither the use by others, nor their names."""
    limit = found.limit
    return found.model_copy(
        update={
            "limit": limit.model_copy(update={"projects": (project,) if limit.projects else ()}),
            "uses": tuple(each for each in found.uses if each.project == project),
        }
    )
