"""Erasure over HTTP: the wish that a project, a task or a document be forgotten for good."""

from typing import Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, Item, List, Write
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.proto.wishes import Erased
from counterpoint.recall import Memory
from counterpoint.router.bodies import PLAIN, Page, ignored, page, read_json, value_of
from counterpoint.router.desk import Asking
from counterpoint.router.openapi import takes
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1/erasures", tags=["operate"])

STORE = "erasures"


class Forget(Shape):
    """What to forget: a task by its id, a document by its source, or, by its name, the whole project that is asked.

    With `shown` also what it was merely shown to, and which did not name it as a source.
    """

    scope: Literal["project", "task", "source"]
    what: str = Field(min_length=1, max_length=2000, pattern=PLAIN)
    reason: str = Field(default="no reason was given", min_length=1, max_length=2000)
    shown: bool = False
    project: ProjectName | None = None


class Erasure(Erased):
    """A wish, and what became of it."""

    erasure_id: Id
    ignored: tuple[str, ...] = ()


@router.post("", status_code=201, responses={201: {"model": Erasure}}, response_model=None, openapi_extra=takes(Forget))
async def erase(request: Request, asked: Asking) -> Response:
    """Forget it for good, and what was derived from it. It cannot be undone."""
    body = await read_json(request)
    asked = asked.within(body)
    asked.needs("admin")
    wish = value_of(Forget, body)
    if wish.scope == "project" and wish.what != asked.project:
        problem = f"must be the name of the project that is asked, {asked.project}"
        raise Permanent("invalid", (Problem(field="what", problem=problem),))
    erasure_id = new_id()
    fields = wish.model_dump(exclude={"project"})

    async def wished(memory: Memory) -> tuple[None, Commit]:
        return None, Commit(writes=(Write(store=STORE, id=erasure_id, body=fields),))

    await asked.commit(wished)
    done = await asked.memory().get(STORE, erasure_id)
    assert done is not None
    return JSONResponse({**_shown(done), "ignored": ignored(Forget, body)}, 201)


@router.get("", responses={200: {"model": Page[Erasure]}}, response_model=None)
async def erasures(asked: Asking, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """What was erased, newest first."""
    asked.needs("admin")
    found = await asked.look(List(store=STORE, limit=limit, cursor=int(cursor) if cursor else None))
    return page((_shown(item) for item in found.items), found.next_cursor)


def _shown(item: Item) -> dict[str, Any]:
    return {"erasure_id": item.id, **item.body}
