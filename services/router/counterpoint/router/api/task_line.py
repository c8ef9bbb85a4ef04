"""Line of a task over HTTP: its actions, decisions and sources (docs/architecture.md)."""

from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from counterpoint.client import Memory, records
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.line import Action
from counterpoint.proto.memory import AsOf, Get, Item, List
from counterpoint.proto.messages import Shape
from counterpoint.router.api.body import item_json
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.intake.interventions import unknown_task
from counterpoint.router.intake.submissions import STORE, task_key
from counterpoint.router.paging import ListPage, TaskId

router = APIRouter(prefix="/v1", tags=["tasks"])

_NAMED = frozenset({"documents", "chunks", "attempts"})
_SOURCES_LIMIT = 200
_PAGE = 1000


class NamedSource(Shape):
    """A source of an action, with a readable name."""

    store: str
    id: str
    name: str


class TaskLine(ListPage[Action]):
    """The actions of a task in order, their decisions and their sources."""

    decisions: tuple[DecisionMade, ...]
    sources: tuple[NamedSource, ...]


@router.get("/tasks/{task_id}/line", responses={200: {"model": TaskLine}}, response_model=None)
async def line(
    context: Context,
    task_id: TaskId,
    as_of: Annotated[AsOf | None, Query(description="As it was at a commit or time.")] = None,
) -> Response:
    """Return the line of a task: every action with its predecessors."""
    return JSONResponse(await read_line(context, task_id, as_of))


async def read_line(context: RequestContext, task_id: str, as_of: str | None = None) -> dict[str, Any]:
    """Return the line of a task as JSON. Raises `Denied`, and `Permanent` `unknown_task`."""
    context.require("read")
    if await context.memory().get(STORE, task_key(task_id)) is None:
        raise unknown_task(context.project)
    actions, decisions = (
        await _all(context, "actions", task_id, as_of),
        await _all(context, "decisions", task_id, as_of),
    )
    line = records(actions, Action)
    sources = await _sources(context.memory(), line)
    return {
        "items": [item_json(action, seq=item.seq) for action, item in zip(line, actions, strict=True)],
        "next_cursor": None,
        "decisions": [item_json(decision) for decision in records(decisions, DecisionMade)],
        "sources": [item_json(source) for source in sources],
    }


async def _all(context: RequestContext, store: str, task_id: str, as_of: str | None) -> list[Item]:
    """Return all records of a task in a store, in order."""
    items: list[Item] = []
    cursor = None
    while True:
        query = List(store=store, task_id=task_id, ascending=True, limit=_PAGE, cursor=cursor, as_of=as_of)
        results = await context.fetch(query)
        items += results.items
        cursor = results.next_cursor
        if cursor is None:
            return items


async def _sources(memory: Memory, line: Iterable[Action]) -> list[NamedSource]:
    source_keys = dict.fromkeys((one.store, one.id) for action in line for one in action.sources if one.store in _NAMED)
    gets = [Get(store=store, id=record_id) for store, record_id in list(source_keys)[:_SOURCES_LIMIT]]
    results = await memory.query(*gets)
    return [NamedSource(store=item.store, id=item.id, name=_name(item)) for one in results for item in one.items]


def _name(item: Item) -> str:
    if item.store == "attempts":
        return f"attempt {item.body['attempt']} of {item.body['task_id']}"
    return str(item.body["source"])
