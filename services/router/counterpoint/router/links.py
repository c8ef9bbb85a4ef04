"""Links over HTTP: pairs of tasks that somebody declares to be the same failure, different ones, or one task."""

from collections.abc import Sequence
from itertools import combinations
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.links import Link, Relation, Side, link_id
from counterpoint.proto.memory import Commit, Get, List
from counterpoint.proto.messages import Id, Shape
from counterpoint.recall import Memory, delete, readable, records
from counterpoint.router.bodies import Page, page, read_json, reply, shown, value_of
from counterpoint.router.desk import Asked, Asking
from counterpoint.router.openapi import takes
from counterpoint.router.pairs import STORE, check_whole, sides_of, written
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1/links", tags=["tasks"])

LIMIT = 20
"""Tasks that one request names at most."""


class NewLinks(Shape):
    """Tasks, and how they are related.

    `same`: every two of them are the same failure. `different`: no two of them are. `merged`: they are the same, and
    all are handled as parts of the first. An attempt's id stands for its task.
    """

    relation: Relation
    tasks: tuple[Id, ...] = Field(min_length=2, max_length=LIMIT)
    reason: str | None = Field(default=None, max_length=4_000)


class Links(Shape):
    """The pairs that were written."""

    items: tuple[Link, ...]


@router.post("", status_code=201, responses={201: {"model": Links}}, response_model=None, openapi_extra=takes(NewLinks))
async def create(request: Request, asked: Asking) -> Response:
    """Declare tasks to be the same failure, different failures, or one task. The last word on a pair counts."""
    body = await read_json(request)
    asked = asked.within(body)
    given = value_of(NewLinks, body)
    _may(asked, given.relation)

    async def linked(memory: Memory) -> tuple[Links, Commit]:
        sides = await sides_of(memory, given.tasks)
        if given.relation == "merged":
            await check_whole(memory, sides[0])
        said = asked.sayer()
        made, writes = await written(
            memory, _pairs(given.relation, sides), given.relation, given.reason, said.by, said.by_kind
        )
        return Links(items=made), Commit(writes=writes)

    return reply(await asked.commit(linked), 201)


@router.get("", responses={200: {"model": Page[Link]}}, response_model=None)
async def links(
    asked: Asking,
    task_id: Annotated[Id | None, Query(description="A task.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Pairs of tasks with their relation, newest first."""
    asked.needs("read")
    where = {"pair": [{"task_id": task_id}]} if task_id else {}
    found = await asked.look(List(store=STORE, where=where, limit=limit, cursor=int(cursor) if cursor else None))
    return page(map(shown, records(found.items, Link)), found.next_cursor)


@router.delete("", responses={200: {"model": Links}}, response_model=None)
async def remove(
    asked: Asking,
    relation: Annotated[Relation, Query(description="What was said of them.")],
    task: Annotated[tuple[Id, ...], Query(description="The tasks, in the order they were named.", max_length=LIMIT)],
) -> Response:
    """Undo what was said of some tasks."""
    _may(asked, relation)

    async def removed(memory: Memory) -> tuple[Links, Commit]:
        named = _pairs(relation, await sides_of(memory, task))
        ids = [link_id(one.task_id, other.task_id) for one, other in named]
        found = [item for each in await memory.query(*(Get(store=STORE, id=i) for i in ids)) for item in each.items]
        known = readable(found, Link)
        undone = [(item, link) for item, link in known if link.relation == relation]
        if len(undone) < max(1, len(named)):
            problem = f"are not linked as {relation} in project {asked.project}"
            raise Permanent("not_found", (Problem(field="task", problem=problem),))
        return Links(items=tuple(link for _, link in undone)), Commit(writes=tuple(delete(item) for item, _ in undone))

    return reply(await asked.commit(removed))


def _pairs(relation: Relation, sides: Sequence[Side]) -> list[tuple[Side, Side]]:
    """Return the pairs that a relation of some tasks consists of."""
    return [(sides[0], other) for other in sides[1:]] if relation == "merged" else list(combinations(sides, 2))


def _may(asked: Asked, relation: str) -> None:
    """Raises `Denied`. A merge changes how tasks go on, as an override does; the others are reports."""
    asked.needs("read")
    asked.needs(*(("override",) if relation == "merged" else ("report", "override")))
