"""The text of a document over HTTP: its passages in order, as they are stored."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ingest import chunk_id
from counterpoint.proto.memory import Get, List
from counterpoint.proto.messages import Shape
from counterpoint.router.api.body import NO_NUL_PATTERN
from counterpoint.router.api.context import Context
from counterpoint.router.paging import Cursor, ListPage, page

router = APIRouter(prefix="/v1", tags=["memory"])

PASSAGES_MAX = 50


class StoredPassage(Shape):
    """A passage of a document. `context` is what is above it, such as its headings; `start` its first character."""

    id: str
    version: int
    text: str
    context: str = ""
    start: int


@router.get("/passages", responses={200: {"model": ListPage[StoredPassage]}}, response_model=None)
async def passages(
    context: Context,
    source: Annotated[str, Query(min_length=1, max_length=2000, pattern=NO_NUL_PATTERN, description="The document.")],
    cursor: Cursor,
    limit: Annotated[int, Query(ge=1, le=PASSAGES_MAX, description="Maximum number of items.")] = 10,
) -> Response:
    """List the passages of a document in order, as stored. Those that the caller may not read are left out."""
    context.require("read")
    found = await context.fetch(List(store="documents", where={"source": source}, limit=1))
    if not found.items:
        problem = f"is not a document of project {context.project}"
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="source", problem=problem),))
    (document,) = found.items
    first = cursor or 0
    end = min(first + limit, int(document.body["chunks"]))
    wanted = (Get(store="chunks", id=chunk_id(document.id, n)) for n in range(first, end))
    answers = await context.memory().query(*wanted) if end > first else ()
    items = [item for answer in answers for item in answer.items]
    shown = (StoredPassage.model_validate(item.body | {"id": item.id, "version": item.version}) for item in items)
    return page((one.model_dump() for one in shown), end if end < int(document.body["chunks"]) else None)
