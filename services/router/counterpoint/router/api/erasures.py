"""Erasure over HTTP: delete a project, a task or a document permanently."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from counterpoint.proto.commands import EraseContent
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Erase, ErasureResult, Item, List
from counterpoint.proto.messages import Id, ProjectName, Shape
from counterpoint.router.api.body import NO_NUL_PATTERN, RequestBody, json_body
from counterpoint.router.api.context import Context
from counterpoint.router.api.large_acts import AwaitedApproval, awaited
from counterpoint.router.api.openapi import request_body
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/erasures", tags=["operate"])

STORE = "erasures"


class ErasureRequest(Shape):
    """Content to erase: a task by id, a document by source, or the project of the request by name.

    With `shown` also records that had it in their read set without citing it.
    """

    scope: Literal["project", "task", "source"]
    what: str = Field(min_length=1, max_length=2000, pattern=NO_NUL_PATTERN)
    reason: str = Field(default="no reason was given", min_length=1, max_length=2000)
    shown: bool = False
    project: ProjectName | None = None


class Erasure(ErasureResult):
    """An erasure and its result."""

    erasure_id: Id
    ignored: tuple[str, ...] = ()


@router.post(
    "",
    status_code=201,
    responses={201: {"model": Erasure}, 202: {"model": AwaitedApproval}},
    response_model=None,
    openapi_extra=request_body(ErasureRequest),
)
async def erase(body: Annotated[RequestBody[ErasureRequest], json_body(ErasureRequest, "admin")]) -> Response:
    """Erase content and all that was derived from it. This cannot be undone.

    Status 202: a large act, which waits for a second person.
    """
    context, wish = body.context, body.value
    if wish.scope == "project" and wish.what != context.project:
        problem = f"must be the name of the project of the request, {context.project}"
        raise Permanent(ErrorCode.INVALID, (Problem(field="what", problem=problem),))
    erasure_id = new_id()
    command = EraseContent(id=erasure_id, wish=Erase.model_validate(wish.model_dump(exclude={"project"})))
    done = await context.memory().command(command)
    if (waits := await awaited(context, done)) is not None:
        return waits
    erasure = await context.memory().get(STORE, erasure_id)
    assert erasure is not None
    return JSONResponse({**_erasure_json(erasure), "ignored": body.ignored}, 201)


@router.get("", responses={200: {"model": ListPage[Erasure]}}, response_model=None)
async def erasures(context: Context, cursor: Cursor, limit: Limit = 50) -> Response:
    """List erasures, newest first."""
    context.require("admin")
    result = await context.fetch(List(store=STORE, limit=limit, cursor=cursor))
    return page((_erasure_json(item) for item in result.items), result.next_cursor)


def _erasure_json(item: Item) -> dict[str, Any]:
    return {"erasure_id": item.id, **item.body}
