"""Limits of the organisation over HTTP: what the calls of several projects may cost together."""

from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query, Response

from counterpoint.client import Memory, delete, put, record
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.limits import (
    ORGANISATION_LIMITS_MAX,
    ORGANISATION_STORE,
    LimitName,
    LimitPeriod,
    OrganisationLimit,
    OrganisationLimitKey,
    StoredOrganisationLimit,
    bounds,
)
from counterpoint.proto.memory import (
    Commit,
    List,
    OrganisationLimits,
    OrganisationLimitUse,
    OrganisationReport,
    ProjectUse,
)
from counterpoint.proto.messages import Time, Usd
from counterpoint.router.api.body import RequestBody, json_body, reply
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.limit_forecast import reached_at
from counterpoint.router.api.openapi import request_body

router = APIRouter(prefix="/v1/limits/organisation", tags=["operate"])


class OrganisationLimitView(StoredOrganisationLimit):
    """A limit of the organisation, and what was used of it in the present period, reservations included.

    `used_*` are those of the project of the request alone. An administrator of all projects sees those of all
    (`everywhere`), by project in `uses`, and the project that used most; nobody else learns what other projects used.
    `reached`: all is used, or a call was refused in the period since the limit was set. `reached_at` is the forecast at
    the average pace of the period so far, for administrators of all projects.
    """

    everywhere: bool
    used_usd: Usd
    used_tokens: int
    reached: bool
    uses: tuple[ProjectUse, ...] = ()
    most_used: str | None = None
    until: Time | None = None
    reached_at: Time | None = None


async def organisation_views(context: RequestContext) -> list[OrganisationLimitView]:
    """Return the limits of the organisation that the caller may see."""
    memory = context.memory()
    (found,) = await memory.query(OrganisationLimits())
    report = OrganisationReport.model_validate(found.report)
    return [_view(each, memory, everywhere=report.everywhere) for each in report.limits]


@router.put(
    "",
    responses={200: {"model": StoredOrganisationLimit}},
    response_model=None,
    openapi_extra=request_body(OrganisationLimit),
)
async def change(
    body: Annotated[RequestBody[OrganisationLimit], json_body(OrganisationLimit, "admin", project_field=False)],
) -> Response:
    """Set a limit of all projects, or of a named set of them, in place of one with the same name and period.

    It holds from the next call on, and counts the calls of its period. The caller is a person and an administrator of
    all projects.
    """
    context = body.context
    _require_all_projects(context)

    async def changed(memory: Memory) -> tuple[StoredOrganisationLimit, Commit]:
        (known,) = await memory.query(List(store=ORGANISATION_STORE, limit=ORGANISATION_LIMITS_MAX))
        item = next((each for each in known.items if each.id == body.value.record_id), None)
        if item is None and len(known.items) >= ORGANISATION_LIMITS_MAX:
            problem = f"the organisation has {ORGANISATION_LIMITS_MAX} limits, the maximum; remove one first"
            raise Permanent(ErrorCode.INVALID, (Problem(field="name", problem=problem),))
        fields = body.value.model_dump() | {"by": context.principal.name, "at": memory.now}
        limit = StoredOrganisationLimit.model_validate(fields)
        return limit, Commit(writes=(put(ORGANISATION_STORE, limit.record_id, limit, existing=item),))

    return reply(await context.commit(changed))


@router.delete("", responses={200: {"model": StoredOrganisationLimit}}, response_model=None)
async def remove(
    context: Context,
    name: Annotated[
        LimitName | None, Query(description="The name of the set; the limit of all projects without.")
    ] = None,
    period: Annotated[LimitPeriod, Query()] = "total",
) -> Response:
    """Remove a limit of the organisation."""
    context.require("admin")
    _require_all_projects(context)
    key = OrganisationLimitKey(name=name, period=period)

    async def removed(memory: Memory) -> tuple[StoredOrganisationLimit, Commit]:
        item = await memory.get(ORGANISATION_STORE, key.record_id)
        if item is None:
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="name", problem="is no limit of this period"),))
        return record(item, StoredOrganisationLimit), Commit(writes=(delete(item),))

    return reply(await context.commit(removed))


def _require_all_projects(context: RequestContext) -> None:
    if "*" not in context.principal.projects:
        raise Denied(ErrorCode.ROLE, "the role admin in all projects")


def _view(found: OrganisationLimitUse, memory: Memory, *, everywhere: bool) -> OrganisationLimitView:
    limit, uses, now = found.limit, found.uses, memory.now
    usd, tokens = sum((each.usd for each in uses), Decimal(0)), sum(each.tokens for each in uses)
    most = max(uses, key=lambda each: each.usd if limit.usd is not None else Decimal(each.tokens), default=None)
    forecast = reached_at(limit, usd, tokens, now) if everywhere else None
    return OrganisationLimitView(
        **limit.model_dump(),
        everywhere=everywhere,
        used_usd=usd,
        used_tokens=tokens,
        reached=found.reached,
        uses=uses if everywhere else (),
        most_used=most.project if most and everywhere else None,
        until=bounds(limit.period, now)[1],
        reached_at=now if found.reached else forecast,
    )
