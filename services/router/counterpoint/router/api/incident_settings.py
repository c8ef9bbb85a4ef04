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
from counterpoint.router.api.jobs import parse_job
from counterpoint.router.api.openapi import request_body
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/incident-settings", tags=["operate"])


@router.get("", responses={200: {"model": ListPage[StoredIncidentSettings]}}, response_model=None)
async def settings(context: Context, cursor: Cursor, limit: Limit = 50) -> Response:
    """List the settings of the project and of its jobs. A job inherits missing settings from the project."""
    context.require("read")
    result = await context.fetch(List(store=STORE, limit=limit, cursor=cursor))
    return page(map(item_json, records(result.items, StoredIncidentSettings)), result.next_cursor)


@router.put(
    "",
    responses={200: {"model": StoredIncidentSettings}},
    response_model=None,
    openapi_extra=request_body(IncidentSettings),
)
async def change(body: Annotated[RequestBody[IncidentSettings], json_body(IncidentSettings, "operate")]) -> Response:
    """Change the settings that the body names, of the project or of `job`. They apply to incidents that open later."""
    context = body.context
    new = await context.memory().redact_names(body.value)

    async def changed(memory: Memory) -> tuple[StoredIncidentSettings, Commit]:
        item = await memory.get(STORE, settings_id(new.job))
        stored = record(item, StoredIncidentSettings) if item else None
        named_fields = {name: getattr(new, name) for name in new.model_fields_set}
        before = stored.model_dump() if stored else {}
        since = (stored.shadow_since if stored and stored.shadow else None) or memory.now
        settings = StoredIncidentSettings.model_validate(
            before | named_fields | {"project": context.project, "by": context.principal.name, "at": memory.now}
        )
        settings = settings.model_copy(update={"shadow_since": since if settings.shadow else None})
        commit = Commit(writes=(put(STORE, settings_id(new.job), settings, existing=item),))
        timer = _report_timer(settings_id(new.job), stored.shadow_since if stored else None, settings.shadow_since)
        return settings, commit.model_copy(update=timer)

    return reply(await context.commit(changed))


@router.delete("", responses={200: {"model": StoredIncidentSettings}}, response_model=None)
async def remove(
    context: Context,
    job: Annotated[str | None, Query(description="A job, `NAMESPACE/NAME`; the project's without one.")] = None,
) -> Response:
    """Remove the settings of the project, or of a job."""
    context.require("operate")

    async def removed(memory: Memory) -> tuple[StoredIncidentSettings, Commit]:
        item = await memory.get(STORE, settings_id(await memory.redact_names(parse_job(job)) if job else None))
        if item is None:
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="job", problem="has no settings of its own"),))
        stored = record(item, StoredIncidentSettings)
        commit = Commit(writes=(delete(item),))
        return stored, commit.model_copy(update=_report_timer(settings_id(stored.job), stored.shadow_since, None))

    return reply(await context.commit(removed))


def _report_timer(record_id: str, before: datetime | None, since: datetime | None) -> dict[str, Any]:
    """Return the parts of a commit that set or cancel the timer of the shadow report."""
    if before == since:
        return {}
    timer = shadow_timer(record_id)
    next_report = ShadowDue(settings_id=record_id, since=since) if since else None
    week = timedelta(seconds=SHADOW_REPORT_S)
    return {
        "cancel_timers": (timer,) if before else (),
        "messages": (send(next_report, due_at=next_report.since + week, timer=timer),) if next_report else (),
    }
