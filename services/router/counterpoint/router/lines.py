"""The line of a task over HTTP: who reasoned what, on what basis, leading to what (row D1)."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse

from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.line import Action
from counterpoint.proto.memory import AsOf, Get, Item, List
from counterpoint.proto.messages import Shape
from counterpoint.recall import Memory, records
from counterpoint.router.bodies import Page, shown
from counterpoint.router.desk import Asked, Asking
from counterpoint.router.interventions import unknown_task
from counterpoint.router.submissions import STORE, task_key
from counterpoint.router.tasks import TaskId

router = APIRouter(prefix="/v1", tags=["tasks"])

_NAMED = frozenset({"documents", "chunks", "attempts"})
_SOURCES_LIMIT = 200
_PAGE = 1000


class NamedSource(Shape):
    """An item that an action rests on, by what people know it as."""

    store: str
    id: str
    name: str


class LineOfTask(Page[Action]):
    """The actions in the order of the record, the decisions they name, and the items they rest on."""

    decisions: tuple[DecisionMade, ...]
    sources: tuple[NamedSource, ...]


@router.get("/tasks/{task_id}/line", responses={200: {"model": LineOfTask}}, response_model=None)
async def line(
    asked: Asking,
    task_id: TaskId,
    as_of: Annotated[AsOf | None, Query(description="As it was at a commit or time.")] = None,
) -> Response:
    """The line of a task: every action, each with those that led to it."""
    asked.needs("read")
    if await asked.memory().get(STORE, task_key(task_id)) is None:
        raise unknown_task(asked.project)
    actions, decisions = (
        await _all(asked, "actions", task_id, as_of),
        await _all(asked, "decisions", task_id, as_of),
    )
    said = records(actions, Action)
    sources = await _sources(asked.memory(), said)
    return JSONResponse(
        {
            "items": [shown(action, seq=item.seq) for action, item in zip(said, actions, strict=True)],
            "next_cursor": None,
            "decisions": [shown(made) for made in records(decisions, DecisionMade)],
            "sources": [shown(source) for source in sources],
        }
    )


async def _all(asked: Asked, store: str, task_id: str, as_of: str | None) -> list[Item]:
    """Every record of a task in a store, in the order of the record."""
    items: list[Item] = []
    cursor = None
    while True:
        query = List(store=store, task_id=task_id, ascending=True, limit=_PAGE, cursor=cursor, as_of=as_of)
        found = await asked.look(query)
        items += found.items
        cursor = found.next_cursor
        if cursor is None:
            return items


async def _sources(memory: Memory, said: Iterable[Action]) -> list[NamedSource]:
    rested = dict.fromkeys((one.store, one.id) for action in said for one in action.sources if one.store in _NAMED)
    wanted = [Get(store=store, id=record_id) for store, record_id in list(rested)[:_SOURCES_LIMIT]]
    found = await memory.query(*wanted) if wanted else ()
    return [NamedSource(store=item.store, id=item.id, name=_name(item)) for one in found for item in one.items]


def _name(item: Item) -> str:
    if item.store == "attempts":
        return f"attempt {item.body['attempt']} of {item.body['task_id']}"
    return str(item.body["source"])
