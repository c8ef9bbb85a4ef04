"""Knowledge graph over HTTP: entities, their neighbours, and the profile of a name (docs/incidents.md)."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import EdgeWalk, HybridSearch, List
from counterpoint.proto.messages import Shape
from counterpoint.router.api.body import NO_NUL_PATTERN, reply
from counterpoint.router.api.context import Context
from counterpoint.router.api.entity_models import EntityProfile
from counterpoint.router.api.entity_profile import look_up
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/entities", tags=["memory"])


class Entity(Shape):
    """An entity that documents or tasks mention: a file, service, DAG, error or system."""

    id: str
    kind: str
    name: str
    properties: dict[str, Any] = {}
    score: float | None = None


class Neighbour(Shape):
    """A relationship near an entity. `source` and `target` are `STORE/ID`."""

    source: str
    target: str
    kind: str
    properties: dict[str, Any] = {}
    hops: int


class Neighbours(Shape):
    """The relationships around an entity, nearest first."""

    entity: Entity
    neighbours: tuple[Neighbour, ...]


@router.get("", responses={200: {"model": ListPage[Entity]}}, response_model=None)
async def entities(
    context: Context,
    cursor: Cursor,
    text: Annotated[str | None, Query(max_length=1000, description="Words of the name.")] = None,
    kind: Annotated[str | None, Query(max_length=40, description="file, service, dag, error or system")] = None,
    limit: Limit = 50,
) -> Response:
    """List the entities of the project, newest first; with `text` the best lexical matches."""
    context.require("read")
    where = {"kind": kind} if kind else {}
    if text:
        search = HybridSearch(store="entities", text=text, where=where, k=limit, vector_weight=0)
        (result,) = await context.memory().query(search)
        hits = [item for item in result.items if (item.scores or {}).get("lexical", 0) > 0]
        return page(({"id": item.id, **item.body, "score": item.score} for item in hits), None)
    result = await context.fetch(List(store="entities", where=where, limit=limit, cursor=cursor))
    return page(({"id": item.id, **item.body} for item in result.items), result.next_cursor)


@router.get("/known", responses={200: {"model": EntityProfile}}, response_model=None)
async def known_thing(
    context: Context,
    name: Annotated[
        str, Query(min_length=1, max_length=500, pattern=NO_NUL_PATTERN, description="A job, data set, owner, ...")
    ],
) -> Response:
    """Return the profile of a name: its owners, inputs, failures and fixes, each with its source record."""
    context.require("read")
    return reply(await look_up(context.memory(), name))


@router.get("/{entity_id}/neighbours", responses={200: {"model": Neighbours}}, response_model=None)
async def neighbours(
    context: Context,
    entity_id: Annotated[str, Path(max_length=64, description="The entity's id.")],
    depth: Annotated[int, Query(ge=1, le=6, description="Maximum number of hops.")] = 1,
    limit: Limit = 50,
) -> Response:
    """Walk the mentions around an entity, hop by hop."""
    context.require("read")
    memory = context.memory()
    entity = await memory.get("entities", entity_id)
    if entity is None:
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="id", problem="is not an entity of this project"),))
    walk = EdgeWalk(store="relationships", start=(f"entities/{entity_id}",), direction="both", depth=depth, limit=limit)
    (result,) = await memory.query(walk)
    neighbourhood = [{**item.body, "hops": int(item.score or 0)} for item in result.items]
    return JSONResponse({"entity": {"id": entity_id, **entity.body}, "neighbours": neighbourhood})
