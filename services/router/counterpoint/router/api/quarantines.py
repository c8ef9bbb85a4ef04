"""Take-back over HTTP: the blast radius of a memory, quarantine, rollback and lift (docs/architecture.md)."""

import re
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from counterpoint.guard.policy import policy
from counterpoint.proto.commands import TakeBackMemory
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ids import document_id, new_id
from counterpoint.proto.memory import Dependents, Item, List, MemoryRadius, TakeBack, TakeBackPreview, TakenBack
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.router.api.body import NO_NUL_PATTERN, RequestBody, json_body
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.large_acts import AwaitedApproval, awaited
from counterpoint.router.api.openapi import request_body
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1", tags=["operate"])

STORE = "quarantines"
_VERSION = r"[1-9][0-9]{0,8}"
_ITEM = re.compile(rf"([a-z_]+)/([^\s@]{{1,200}})(?:@({_VERSION}))?")


class QuarantineRequest(Shape):
    """A memory to take back.

    `item` is `STORE/ID`, `STORE/ID@VERSION` (from that version on), or the source of a document;
    for `lift` the id of the quarantine or rollback. `cited_only` has no effect: uncited reads are never taken back.
    With `preview` nothing changes, and the reply is a `TakeBackPreview`: what a quarantine or rollback would do.
    """

    kind: Literal["quarantine", "rollback", "lift"]
    item: str = Field(min_length=1, max_length=2000, pattern=NO_NUL_PATTERN)
    reason: str = Field(default="no reason was given", min_length=1, max_length=2000)
    cited_only: bool = False
    preview: bool = False
    project: ProjectName | None = None


class Quarantine(TakenBack):
    """A take-back and its result."""

    quarantine_id: Id
    ignored: tuple[str, ...] = ()


@router.get("/blast-radius", responses={200: {"model": MemoryRadius}}, response_model=None)
async def blast_radius(
    context: Context,
    item: Annotated[
        str,
        Query(
            max_length=2000,
            pattern=NO_NUL_PATTERN,
            description="`STORE/ID`, `STORE/ID@VERSION`, or a document's source.",
        ),
    ],
    limit: Annotated[int, Query(ge=1, le=100_000, description="Maximum number of items.")] = 5000,
    shown: Annotated[bool, Query(description="Also items that read it without citing it.")] = False,
) -> Response:
    """Return all items, decisions and tasks that used a memory, with hops. An unknown item is 404."""
    context.require("read")
    store, record_id, version = await _named(context, item)
    query = Dependents(store=store, id=record_id, version=version or 1, limit=limit, shown=shown)
    (result,) = await context.memory().query(query)
    if result.report is None:
        raise _unknown(context, item)
    return JSONResponse(result.report)


@router.post(
    "/quarantines",
    status_code=201,
    responses={200: {"model": TakeBackPreview}, 201: {"model": Quarantine}, 202: {"model": AwaitedApproval}},
    response_model=None,
    openapi_extra=request_body(QuarantineRequest),
)
async def take_back(
    body: Annotated[RequestBody[QuarantineRequest], json_body(QuarantineRequest, "operate")],
) -> Response:
    """Take a memory and all that used it out of every read, restore the version before, or undo a take-back.

    A preview is status 200. Status 202: a large act, which waits for a second person.
    """
    context, wish = body.context, body.value
    record_id, item = wish.item, dict[str, Any]({"id": wish.item})
    if wish.kind != "lift":
        store, record_id, version = await _named(context, wish.item)
        item = {"store": store, "id": record_id, "version": version}
    fields = {**item, **wish.model_dump(include={"kind", "reason", "cited_only"})}
    quarantine_id = new_id()
    command = TakeBackMemory(id=quarantine_id, wish=TakeBack.model_validate(fields), preview=wish.preview)
    try:
        done = await context.memory().command(command)
    except Permanent as error:
        if error.code == ErrorCode.NOT_FOUND and record_id not in wish.item:
            unknown = _unknown(context, wish.item)
            unknown.refusal = error.refusal
            raise unknown from error
        raise
    if wish.preview:
        return JSONResponse(done.report)
    if (waits := await awaited(context, done)) is not None:
        return waits
    quarantine = await context.memory().get(STORE, quarantine_id)
    assert quarantine is not None
    return JSONResponse({**_shown(quarantine), "ignored": body.ignored}, 201)


@router.get("/quarantines", responses={200: {"model": ListPage[Quarantine]}}, response_model=None)
async def quarantines(context: Context, cursor: Cursor, limit: Limit = 50) -> Response:
    """List take-backs, newest first."""
    context.require("operate")
    result = await context.fetch(List(store=STORE, limit=limit, cursor=cursor))
    return page((_shown(item) for item in result.items), result.next_cursor)


def _shown(item: Item) -> dict[str, Any]:
    return {"quarantine_id": item.id, **item.body}


def _unknown(context: RequestContext, item: str) -> Permanent:
    problem = f"{item} is not a memory of project {context.project} and not the source of a document"
    return Permanent(ErrorCode.NOT_FOUND, (Problem(field="item", problem=problem),))


async def _named(context: RequestContext, text: str) -> tuple[str, str, int | None]:
    """Return the store, id and version that a text names. A source also names a document that was taken out."""
    reference = _ITEM.fullmatch(text)
    if reference is not None and reference[1] in policy().stores:
        return reference[1], reference[2], int(reference[3]) if reference[3] else None
    source, at, version = text.rpartition("@")
    (result,) = await context.memory().query(List(store="documents", where={"source": text}, limit=1))
    if result.items or not at or re.fullmatch(_VERSION, version) is None:
        return "documents", document_id(text), None
    return "documents", document_id(source), int(version)
