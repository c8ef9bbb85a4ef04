"""Incident settings over HTTP, by project or by job."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from counterpoint.client import Memory, delete, put, record, records, send
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
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
from counterpoint.router.api.body import RequestBody, item_json, json_body, reply
from counterpoint.router.api.context import Context
from counterpoint.router.api.jobs import job_named
from counterpoint.router.api.openapi import request_body
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/incident-settings", tags=["operate"])


@router.get("", responses={200: {"model": ListPage[StoredIncidentSettings]}}, response_model=None)
async def settings(context: Context, cursor: Cursor, limit: Limit = 50) -> Response:
    """List the settings of the project and of its jobs. A job inherits missing settings from the project."""
    context.require("read")
    found = await context.fetch(List(store=STORE, limit=limit, cursor=cursor))
    return page(map(item_json, records(found.items, StoredIncidentSettings)), found.next_cursor)


@router.put(
    "",
    responses={200: {"model": StoredIncidentSettings}},
    response_model=None,
    openapi_extra=request_body(IncidentSettings),
)
async def change(body: Annotated[RequestBody[IncidentSettings], json_body(IncidentSettings, "operate")]) -> Response:
    """Change the settings that the body names, of the project or of `job`. They apply to incidents that open later."""
    context = body.context
    given = await context.memory().redact_names(body.value)

    async def changed(memory: Memory) -> tuple[StoredIncidentSettings, Commit]:
        known = await memory.get(STORE, settings_id(given.job))
        held = record(known, StoredIncidentSettings) if known else None
        said = {name: getattr(given, name) for name in given.model_fields_set}
        before = held.model_dump() if held else {}
        since = (held.shadow_since if held and held.shadow else None) or memory.now
        made = StoredIncidentSettings.model_validate(
            before | said | {"project": context.project, "by": context.principal.name, "at": memory.now}
        )
        made = made.model_copy(update={"shadow_since": since if made.shadow else None})
        commit = Commit(writes=(put(STORE, settings_id(given.job), made, existing=known),))
        before_since = held.shadow_since if held else None
        return made, commit.model_copy(update=_timed(settings_id(given.job), before_since, made.shadow_since))

    return reply(await context.commit(changed))


@router.delete("", responses={200: {"model": StoredIncidentSettings}}, response_model=None)
async def remove(
    context: Context,
    job: Annotated[str | None, Query(description="A job, `NAMESPACE/NAME`; the project's without one.")] = None,
) -> Response:
    """Remove the settings of the project, or of a job."""
    context.require("operate")

    async def removed(memory: Memory) -> tuple[StoredIncidentSettings, Commit]:
        known = await memory.get(STORE, settings_id(await memory.redact_names(job_named(job)) if job else None))
        if known is None:
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="job", problem="has no settings of its own"),))
        held = record(known, StoredIncidentSettings)
        commit = Commit(writes=(delete(known),))
        return held, commit.model_copy(update=_timed(settings_id(held.job), held.shadow_since, None))

    return reply(await context.commit(removed))


def _timed(record_id: str, before: datetime | None, since: datetime | None) -> dict[str, Any]:
    """Return the parts of a commit that set or cancel the timer of the shadow report."""
    if before == since:
        return {}
    timer = shadow_timer(record_id)
    due = ShadowDue(settings_id=record_id, since=since) if since else None
    week = timedelta(seconds=SHADOW_REPORT_S)
    return {
        "cancel_timers": (timer,) if before else (),
        "messages": (send(due, due_at=due.since + week, timer=timer),) if due else (),
    }
