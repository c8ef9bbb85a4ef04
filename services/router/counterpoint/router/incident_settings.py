"""Settings of incidents over HTTP, by project or by job."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.incident_settings import (
    SHADOW_REPORT_S,
    STORE,
    IncidentSettings,
    ShadowDue,
    StoredIncidentSettings,
    settings_id,
    shadow_timer,
)
from counterpoint.proto.memory import Commit, List
from counterpoint.recall import Memory, delete, put, record, records, send
from counterpoint.router.bodies import Page, page, read_json, reply, shown, value_of
from counterpoint.router.desk import Asking
from counterpoint.router.jobs import job_named
from counterpoint.router.openapi import takes
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1/incident-settings", tags=["operate"])


@router.get("", responses={200: {"model": Page[StoredIncidentSettings]}}, response_model=None)
async def settings(asked: Asking, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """The settings of the project and of its jobs. What a job leaves out it has from the project."""
    asked.needs("read")
    found = await asked.look(List(store=STORE, limit=limit, cursor=int(cursor) if cursor else None))
    return page(map(shown, records(found.items, StoredIncidentSettings)), found.next_cursor)


@router.put(
    "",
    responses={200: {"model": StoredIncidentSettings}},
    response_model=None,
    openapi_extra=takes(IncidentSettings),
)
async def change(request: Request, asked: Asking) -> Response:
    """Set what the body names, of the project or of `job`; the rest stays. It holds for incidents that open later."""
    body = await read_json(request)
    asked = asked.within(body)
    asked.needs("operate")
    given = await asked.memory().harmless(value_of(IncidentSettings, body))

    async def changed(memory: Memory) -> tuple[StoredIncidentSettings, Commit]:
        known = await memory.get(STORE, settings_id(given.job))
        held = record(known, StoredIncidentSettings) if known else None
        said = {name: getattr(given, name) for name in given.model_fields_set}
        before = held.model_dump() if held else {}
        since = (held.shadow_since if held and held.shadow else None) or memory.now
        made = StoredIncidentSettings.model_validate(
            before | said | {"project": asked.project, "by": asked.principal.name, "at": memory.now}
        )
        made = made.model_copy(update={"shadow_since": since if made.shadow else None})
        commit = Commit(writes=(put(STORE, settings_id(given.job), made, seen=known),))
        before_since = held.shadow_since if held else None
        return made, commit.model_copy(update=_timed(settings_id(given.job), before_since, made.shadow_since))

    return reply(await asked.commit(changed))


@router.delete("", responses={200: {"model": StoredIncidentSettings}}, response_model=None)
async def remove(
    asked: Asking,
    job: Annotated[str | None, Query(description="A job, `NAMESPACE/NAME`; the project's without one.")] = None,
) -> Response:
    """Remove the settings of the project, or of a job."""
    asked.needs("operate")

    async def removed(memory: Memory) -> tuple[StoredIncidentSettings, Commit]:
        known = await memory.get(STORE, settings_id(await memory.harmless(job_named(job)) if job else None))
        if known is None:
            raise Permanent("not_found", (Problem(field="job", problem="has no settings of its own"),))
        held = record(known, StoredIncidentSettings)
        commit = Commit(writes=(delete(known),))
        return held, commit.model_copy(update=_timed(settings_id(held.job), held.shadow_since, None))

    return reply(await asked.commit(removed))


def _timed(record_id: str, before: datetime | None, since: datetime | None) -> dict[str, Any]:
    """The parts of a commit by which the report of a shadow comes due a week after it begins, and not once it ends."""
    if before == since:
        return {}
    timer = shadow_timer(record_id)
    due = ShadowDue(settings_id=record_id, since=since) if since else None
    week = timedelta(seconds=SHADOW_REPORT_S)
    return {
        "cancel_timers": (timer,) if before else (),
        "messages": (send(due, due_at=due.since + week, timer=timer),) if due else (),
    }
