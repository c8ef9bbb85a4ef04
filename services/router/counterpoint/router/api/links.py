"""Links over HTTP: tasks declared to be the same failure, different failures, or one task."""

from collections.abc import Sequence
from itertools import combinations
from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from counterpoint.client import Memory, delete, readable, records
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.links import Link, Relation, Side, link_id
from counterpoint.proto.memory import Commit, Get, List
from counterpoint.proto.messages import Id, Shape
from counterpoint.router.api.body import RequestBody, item_json, json_body, reply
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.openapi import request_body
from counterpoint.router.intake.task_links import (
    STORE,
    check_not_merged,
    check_parts,
    link_messages,
    link_writes,
    removal_messages,
    sides_of,
)
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/links", tags=["tasks"])

LIMIT = 20
"""Maximum number of tasks of a request."""


class NewLinks(Shape):
    """Tasks and their relation.

    `same`: all are the same failure. `different`: no two are. `merged`: all are handled as parts of the first. The id
    of an attempt stands for its task.
    """

    relation: Relation
    tasks: tuple[Id, ...] = Field(min_length=2, max_length=LIMIT)
    reason: str | None = Field(default=None, max_length=4_000)


class Links(Shape):
    """The pairs that were written."""

    items: tuple[Link, ...]


@router.post(
    "", status_code=201, responses={201: {"model": Links}}, response_model=None, openapi_extra=request_body(NewLinks)
)
async def create(body: Annotated[RequestBody[NewLinks], json_body(NewLinks)]) -> Response:
    """Declare tasks to be the same failure, different failures, or one task. The latest declaration counts."""
    context, value = body.context, body.value
    _check_role(context, value.relation)

    async def linked(memory: Memory) -> tuple[Links, Commit]:
        sides = await sides_of(memory, value.tasks)
        if value.relation == "merged":
            await check_not_merged(memory, sides[0])
            await check_parts(memory, sides)
        reporter = context.reporter()
        declared = await link_writes(
            memory, _pairs(value.relation, sides), value.relation, value.reason, reporter.by, reporter.by_kind
        )
        messages = await link_messages(memory, declared.new, value.relation, reporter.by, reporter.by_kind)
        return Links(items=declared.links), Commit(writes=declared.writes, messages=messages)

    return reply(await context.commit(linked), 201)


@router.get("", responses={200: {"model": ListPage[Link]}}, response_model=None)
async def links(
    context: Context,
    cursor: Cursor,
    task_id: Annotated[Id | None, Query(description="A task.")] = None,
    limit: Limit = 50,
) -> Response:
    """List linked pairs of tasks, newest first."""
    context.require("read")
    where = {"pair": [{"task_id": task_id}]} if task_id else {}
    items = await context.fetch(List(store=STORE, where=where, limit=limit, cursor=cursor))
    return page(map(item_json, records(items.items, Link)), items.next_cursor)


@router.delete("", responses={200: {"model": Links}}, response_model=None)
async def remove(
    context: Context,
    relation: Annotated[Relation, Query(description="The declared relation.")],
    task: Annotated[tuple[Id, ...], Query(description="The tasks, in their original order.", max_length=LIMIT)],
) -> Response:
    """Remove links between tasks."""
    _check_role(context, relation)

    async def removed(memory: Memory) -> tuple[Links, Commit]:
        pairs = _pairs(relation, await sides_of(memory, task))
        ids = [link_id(one.task_id, other.task_id) for one, other in pairs]
        items = [item for each in await memory.query(*(Get(store=STORE, id=i) for i in ids)) for item in each.items]
        stored = readable(items, Link)
        undone = [(item, link) for item, link in stored if link.relation == relation]
        if len(undone) < max(1, len(pairs)):
            problem = f"are not linked as {relation} in project {context.project}"
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="task", problem=problem),))
        links, reporter = tuple(link for _, link in undone), context.reporter()
        messages = await removal_messages(memory, links, relation, reporter.by, reporter.by_kind)
        return Links(items=links), Commit(writes=tuple(delete(item) for item, _ in undone), messages=messages)

    return reply(await context.commit(removed))


def _pairs(relation: Relation, sides: Sequence[Side]) -> list[tuple[Side, Side]]:
    """Return the pairs that a relation of some tasks consists of."""
    return [(sides[0], other) for other in sides[1:]] if relation == "merged" else list(combinations(sides, 2))


def _check_role(context: RequestContext, relation: str) -> None:
    """Raises `Denied`. A merge changes how tasks go on, as an override does; the others are reports."""
    context.require("read")
    context.require(*(("override",) if relation == "merged" else ("report", "override")))
