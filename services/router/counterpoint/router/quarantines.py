"""Taking back over HTTP: what rests on a memory, and the wish that all of it be taken out or put back (row M1)."""

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from counterpoint.guard.policy import policy
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.ids import document_id, new_id
from counterpoint.proto.memory import Commit, Item, List, RestsOn, Write
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.proto.wishes import MemoryRadius, TakenBack
from counterpoint.recall import Memory
from counterpoint.router.bodies import PLAIN, Page, ignored, page, read_json, value_of
from counterpoint.router.desk import Asked, Asking
from counterpoint.router.openapi import takes
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1", tags=["operate"])

STORE = "quarantines"
_ITEM = re.compile(r"([a-z_]+)/([^\s@]{1,200})(?:@([1-9][0-9]{0,8}))?")


class Wish(Shape):
    """What to take back. `item` is `STORE/ID`, `STORE/ID@VERSION` (from that version on), or the source of a document;
    to `lift` a quarantine or rollback, its id. `cited_only` has no effect: what was only shown is never taken back."""

    kind: Literal["quarantine", "rollback", "lift"]
    item: str = Field(min_length=1, max_length=2000, pattern=PLAIN)
    reason: str = Field(default="no reason was given", min_length=1, max_length=2000)
    cited_only: bool = False
    project: ProjectName | None = None


class Quarantine(TakenBack):
    """A wish, and what became of it."""

    quarantine_id: Id
    ignored: tuple[str, ...] = ()


@router.get("/blast-radius", responses={200: {"model": MemoryRadius}}, response_model=None)
async def blast_radius(
    asked: Asking,
    item: Annotated[
        str,
        Query(max_length=2000, pattern=PLAIN, description="`STORE/ID`, `STORE/ID@VERSION`, or a document's source."),
    ],
    limit: Annotated[int, Query(ge=1, le=100_000, description="At most so many items.")] = 5000,
    shown: Annotated[bool, Query(description="Also what it was only shown to.")] = False,
) -> Response:
    """All that used a memory: items, decisions and tasks, with hops. An item that is not there is 404."""
    asked.needs("read")
    store, record_id, version = await _named(asked, item)
    query = RestsOn(store=store, id=record_id, version=version or 1, limit=limit, shown=shown)
    (found,) = await asked.memory().query(query)
    if found.report is None:
        raise _unknown(asked, item)
    return JSONResponse(found.report)


@router.post(
    "/quarantines",
    status_code=201,
    responses={201: {"model": Quarantine}},
    response_model=None,
    openapi_extra=takes(Wish),
)
async def take_back(request: Request, asked: Asking) -> Response:
    """Take a memory and all that used it out of every read, put back what stood before, or undo one of both."""
    body = await read_json(request)
    asked = asked.within(body)
    asked.needs("operate")
    wish = value_of(Wish, body)
    item: dict[str, Any] = {"id": wish.item}
    if wish.kind != "lift":
        store, record_id, version = await _named(asked, wish.item)
        item = {"store": store, "id": record_id, "version": version}
    fields = {**item, **wish.model_dump(include={"kind", "reason", "cited_only"})}
    quarantine_id = new_id()

    async def wished(memory: Memory) -> tuple[None, Commit]:
        return None, Commit(writes=(Write(store=STORE, id=quarantine_id, body=fields),))

    await asked.commit(wished)
    done = await asked.memory().get(STORE, quarantine_id)
    assert done is not None
    return JSONResponse({**_shown(done), "ignored": ignored(Wish, body)}, 201)


@router.get("/quarantines", responses={200: {"model": Page[Quarantine]}}, response_model=None)
async def quarantines(asked: Asking, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """What was taken back, newest first."""
    asked.needs("operate")
    found = await asked.look(List(store=STORE, limit=limit, cursor=int(cursor) if cursor else None))
    return page((_shown(item) for item in found.items), found.next_cursor)


def _shown(item: Item) -> dict[str, Any]:
    return {"quarantine_id": item.id, **item.body}


def _unknown(asked: Asked, item: str) -> Permanent:
    problem = f"{item} is no memory of project {asked.project}, and no source of a document there"
    return Permanent("not_found", (Problem(field="item", problem=problem),))


async def _named(asked: Asked, text: str) -> tuple[str, str, int | None]:
    """The store, id and version that a text names; a document is also known by its source, though it was taken out."""
    named = _ITEM.fullmatch(text)
    if named is not None and named[1] in policy().stores:
        return named[1], named[2], int(named[3]) if named[3] else None
    source, at, version = text.rpartition("@")
    (whole,) = await asked.memory().query(List(store="documents", where={"source": text}, limit=1))
    if whole.items or not at or not version.isdecimal():
        return "documents", document_id(text), None
    return "documents", document_id(source), int(version)
