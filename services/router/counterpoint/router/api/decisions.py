"""Decisions over HTTP: those of a project, newest first."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from counterpoint.client import readable
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.memory import List
from counterpoint.proto.messages import Id
from counterpoint.router.api.body import item_json
from counterpoint.router.api.context import Context
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1", tags=["streams"])


class LoggedDecision(DecisionMade):
    """A decision and its position in the log. `/v1/decisions/stream` with this `Last-Event-ID` goes on after it."""

    seq: int


@router.get("/decisions", responses={200: {"model": ListPage[LoggedDecision]}}, response_model=None)
async def decisions(
    context: Context,
    cursor: Cursor,
    task_id: Annotated[Id | None, Query(description="The decisions of one task.")] = None,
    limit: Limit = 50,
) -> Response:
    """List the decisions of a project, newest first."""
    context.require("read")
    found = await context.fetch(List(store="decisions", task_id=task_id, limit=limit, cursor=cursor))
    shown = (item_json(decision, seq=item.seq) for item, decision in readable(found.items, DecisionMade))
    return page(shown, found.next_cursor)
