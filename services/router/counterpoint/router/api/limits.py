"""Limits of what model calls may cost, over HTTP."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Query, Response

from counterpoint.client import Memory, delete, put, record, records
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.limits import (
    LIMITS_MAX,
    STORE,
    LimitKey,
    LimitName,
    LimitPeriod,
    LimitScope,
    SpendLimit,
    StoredLimit,
    bounds,
    spend_record_id,
)
from counterpoint.proto.memory import Commit, CostReport, Costs, CostSum, Get, List, QueryResult
from counterpoint.proto.messages import Shape, Time, Usd
from counterpoint.router.api.body import RequestBody, item_json, json_body, reply
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.limit_forecast import reached_at
from counterpoint.router.api.openapi import request_body
from counterpoint.router.api.organisation_limits import OrganisationLimitView, organisation_views
from counterpoint.router.paging import ListPage, page

router = APIRouter(prefix="/v1/limits", tags=["operate"])


class LimitSpend(Shape):
    """The fields of a record of spending under a limit: what approvals lifted it by, since it was set."""

    limit_at: Time | None = None
    lifted_usd: Usd = Decimal(0)
    lifted_tokens: int = 0
    warned: bool = False


class LimitView(StoredLimit):
    """A limit and what was used of it in the present period, reservations included.

    `lifted_*` is what approvals added to it in the period, `warned` that its soft amount is reached.
    Without a name `used_*` are those of `most_used`, the agent, session or task that used most. `until` is the end of
    the period. `reached_at`: when the limit, without lifts, or a soft limit alone is reached at the average pace of the
    period so far, absent if that is not before its end.
    """

    used_usd: Usd
    used_tokens: int
    lifted_usd: Usd = Decimal(0)
    lifted_tokens: int = 0
    warned: bool = False
    most_used: str | None = None
    until: Time | None = None
    reached_at: Time | None = None


@router.get("", responses={200: {"model": ListPage[LimitView | OrganisationLimitView]}}, response_model=None)
async def limits(context: Context) -> Response:
    """List the limits of the project, with what was used of each, the newest first; then those of the organisation."""
    context.require("read")
    memory = context.memory()
    (found,) = await memory.query(List(store=STORE, limit=LIMITS_MAX))
    stored = records(found.items, StoredLimit)
    # One sum for each scope and period, and one for each named limit whose group it leaves out.
    sums = await _sums(context, {_costs(limit, memory.now) for limit in stored})
    missing = {
        limit.record_id: _costs(limit, memory.now, _key(limit))
        for limit in stored
        if _key(limit) is not None and sums[_costs(limit, memory.now)].truncated
    }
    sums |= await _sums(context, set(missing.values()))
    queries = [missing.get(limit.record_id, _costs(limit, memory.now)) for limit in stored]
    views = [_view(limit, sums[query], memory.now) for limit, query in zip(stored, queries, strict=True)]
    shown = [*await _with_lifts(context, views, memory.now), *await organisation_views(context)]
    return page(map(item_json, shown), None)


@router.put("", responses={200: {"model": StoredLimit}}, response_model=None, openapi_extra=request_body(SpendLimit))
async def change(body: Annotated[RequestBody[SpendLimit], json_body(SpendLimit, "operate")]) -> Response:
    """Set a limit, in place of one for the same scope, name and period. It holds from the next call on."""
    context = body.context

    async def changed(memory: Memory) -> tuple[StoredLimit, Commit]:
        (known,) = await memory.query(List(store=STORE, limit=LIMITS_MAX))
        item = next((each for each in known.items if each.id == body.value.record_id), None)
        if item is None and len(known.items) >= LIMITS_MAX:
            problem = f"the project has {LIMITS_MAX} limits, the maximum; remove one first"
            raise Permanent(ErrorCode.INVALID, (Problem(field="scope", problem=problem),))
        fields = body.value.model_dump() | {"project": context.project, "by": context.principal.name, "at": memory.now}
        limit = StoredLimit.model_validate(fields)
        return limit, Commit(writes=(put(STORE, limit.record_id, limit, existing=item),))

    return reply(await context.commit(changed))


@router.delete("", responses={200: {"model": StoredLimit}}, response_model=None)
async def remove(
    context: Context,
    scope: Annotated[LimitScope, Query()] = "project",
    name: Annotated[LimitName | None, Query(description="An agent, session or task; of each without one.")] = None,
    period: Annotated[LimitPeriod, Query()] = "total",
) -> Response:
    """Remove a limit."""
    context.require("operate")
    key = LimitKey(scope=scope, name=name if scope != "project" else None, period=period)

    async def removed(memory: Memory) -> tuple[StoredLimit, Commit]:
        item = await memory.get(STORE, key.record_id)
        if item is None:
            problem = Problem(field="scope", problem="has no limit with this name and period")
            raise Permanent(ErrorCode.NOT_FOUND, (problem,))
        return record(item, StoredLimit), Commit(writes=(delete(item),))

    return reply(await context.commit(removed))


async def _sums(context: RequestContext, queries: set[Costs]) -> dict[Costs, CostReport]:
    """Return the report of each query."""
    ordered = list(queries)
    found = await context.memory().query(*ordered)
    return {query: CostReport.model_validate(result.report) for query, result in zip(ordered, found, strict=True)}


async def _with_lifts(context: RequestContext, views: list[LimitView], now: datetime) -> list[LimitView]:
    """Add what is known of each limit besides the calls: of a limit without a name, for who used most."""
    names = [view.most_used or _key(view) for view in views]
    gets = [
        Get(store="spend", id=spend_record_id(view, name, bounds(view.period, now)[0]))
        for view, name in zip(views, names, strict=True)
        if name is not None
    ]
    found = iter(await context.memory().query(*gets) if gets else ())
    return [view if name is None else _with_lift(view, next(found)) for view, name in zip(views, names, strict=True)]


def _with_lift(view: LimitView, found: QueryResult) -> LimitView:
    spend = next(iter(records(found.items, LimitSpend)), None)
    if spend is None or spend.limit_at != view.at:
        return view
    known = {"lifted_usd": spend.lifted_usd, "lifted_tokens": spend.lifted_tokens, "warned": spend.warned}
    return view.model_copy(update=known)


def _key(limit: StoredLimit) -> str | None:
    return limit.project if limit.scope == "project" else limit.name


def _costs(limit: StoredLimit, now: datetime, key: str | None = None) -> Costs:
    since, until = bounds(limit.period, now)
    return Costs(by=limit.scope, key=key, since=since, until=until, limit=1000)


def _view(limit: StoredLimit, report: CostReport, now: datetime) -> LimitView:
    key = _key(limit)
    named = [line for line in report.lines if line.key and key in (None, line.key)]
    in_usd = limit.usd is not None or limit.soft_usd is not None
    most = max(named, key=lambda line: _amount(line, in_usd=in_usd), default=None)
    used = most or CostSum()
    usd, tokens = used.usd + used.reserved_usd, used.tokens + used.reserved_tokens
    return LimitView(
        **limit.model_dump(),
        used_usd=usd,
        used_tokens=tokens,
        most_used=most.key if most and limit.scope != "project" and limit.name is None else None,
        until=bounds(limit.period, now)[1],
        reached_at=reached_at(limit, usd, tokens, now),
    )


def _amount(used: CostSum, *, in_usd: bool) -> Decimal:
    return used.usd + used.reserved_usd if in_usd else Decimal(used.tokens + used.reserved_tokens)
