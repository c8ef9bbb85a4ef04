"""Costs of model calls over HTTP."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from counterpoint.proto.memory import CostGroup, CostReport, Costs
from counterpoint.proto.messages import Time
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context

router = APIRouter(prefix="/v1/costs", tags=["operate"])


@router.get("", responses={200: {"model": CostReport}}, response_model=None)
async def costs(
    context: Context,
    by: Annotated[CostGroup, Query(description="The group of each line.")] = "model",
    since: Annotated[Time | None, Query(description="Calls at this time or later.")] = None,
    until: Annotated[Time | None, Query(description="Calls before this time.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> Response:
    """Return what the model calls of the project cost, by group, the most expensive first, and the total."""
    context.require("read")
    (found,) = await context.memory().query(Costs(by=by, since=since, until=until, limit=limit))
    return reply(CostReport.model_validate(found.report))
