"""The knowledge graph over HTTP: what documents and tasks mention, what stands beside it, and what is known of a thing
(row B1)."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import JSONResponse

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.memory import HybridSearch, List, Walk
from counterpoint.proto.messages import Shape
from counterpoint.router.bodies import PLAIN, Page, page, reply
from counterpoint.router.desk import Asking
from counterpoint.router.known import look_up
from counterpoint.router.tasks import Cursor, Limit
from counterpoint.router.things import KnownThing

router = APIRouter(prefix="/v1/entities", tags=["memory"])


class Entity(Shape):
    """A thing that is mentioned: a file, a service, a DAG, an error or a system."""

    id: str
    kind: str
    name: str
    properties: dict[str, Any] = {}
    score: float | None = None


class Neighbour(Shape):
    """A relationship near an entity, so many hops away: who mentions what, `STORE/ID` each."""

    source: str
    target: str
    kind: str
    properties: dict[str, Any] = {}
    hops: int


class Neighbours(Shape):
    """What stands around an entity, nearest first."""

    entity: Entity
    neighbours: tuple[Neighbour, ...]


@router.get("", responses={200: {"model": Page[Entity]}}, response_model=None)
async def entities(
    asked: Asking,
    text: Annotated[str | None, Query(max_length=1000, description="Words of the name.")] = None,
    kind: Annotated[str | None, Query(max_length=40, description="file, service, dag, error or system")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """What is mentioned anywhere in the project, newest first; with `text` the best by words."""
    asked.needs("read")
    where = {"kind": kind} if kind else {}
    if text:
        search = HybridSearch(store="entities", text=text, where=where, k=limit, vector_weight=0)
        (found,) = await asked.memory().query(search)
        hits = [item for item in found.items if (item.scores or {}).get("lexical", 0) > 0]
        return page(({"id": item.id, **item.body, "score": item.score} for item in hits), None)
    found = await asked.look(List(store="entities", where=where, limit=limit, cursor=int(cursor) if cursor else None))
    return page(({"id": item.id, **item.body} for item in found.items), found.next_cursor)


@router.get("/known", responses={200: {"model": KnownThing}}, response_model=None)
async def known_thing(
    asked: Asking,
    name: Annotated[str, Query(min_length=1, max_length=500, pattern=PLAIN, description="A job, data set, owner, ...")],
) -> Response:
    """What is known of a thing: who owns it, what feeds it, what broke it, what fixed it, each with its record."""
    asked.needs("read")
    return reply(await look_up(asked.memory(), name))


@router.get("/{entity_id}/neighbours", responses={200: {"model": Neighbours}}, response_model=None)
async def neighbours(
    asked: Asking,
    entity_id: Annotated[str, Path(max_length=64, description="The entity's id.")],
    depth: Annotated[int, Query(ge=1, le=6, description="At most so many hops.")] = 1,
    limit: Limit = 50,
) -> Response:
    """What mentions an entity, what else that mentions, and so on."""
    asked.needs("read")
    memory = asked.memory()
    entity = await memory.get("entities", entity_id)
    if entity is None:
        raise Permanent("not_found", (Problem(field="id", problem="is no entity of this project"),))
    walk = Walk(store="relationships", start=(f"entities/{entity_id}",), direction="both", depth=depth, limit=limit)
    (found,) = await memory.query(walk)
    near = [{**item.body, "hops": int(item.score or 0)} for item in found.items]
    return JSONResponse({"entity": {"id": entity_id, **entity.body}, "neighbours": near})
