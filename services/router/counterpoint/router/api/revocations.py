"""Revocations of capabilities over HTTP. A revocation is permanent."""

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from counterpoint.client import Memory, put, records
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Commit, List
from counterpoint.proto.messages import Shape
from counterpoint.proto.records import Revocation, RevocationId
from counterpoint.router.api.body import RequestBody, item_json, json_body, reply
from counterpoint.router.api.context import Context
from counterpoint.router.api.openapi import request_body
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/revocations", tags=["operate"])

STORE = "revocations"


class NewRevocation(Shape):
    """A capability of the project to revoke, by its revocation id, and the reason."""

    revocation_id: RevocationId
    reason: str = Field(min_length=1, max_length=1_000)


@router.post(
    "",
    status_code=201,
    responses={201: {"model": Revocation}},
    response_model=None,
    openapi_extra=request_body(NewRevocation),
)
async def create(body: Annotated[RequestBody[NewRevocation], json_body(NewRevocation, "operate")]) -> Response:
    """Revoke a capability of the project and all that were derived from it. This cannot be undone."""
    context, value = body.context, body.value

    async def revoked(memory: Memory) -> tuple[Revocation, Commit]:
        if await memory.get(STORE, value.revocation_id) is not None:
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="revocation_id", problem="is revoked already"),))
        revocation = Revocation(**value.model_dump(), revoked_by=context.principal.name, revoked_at=memory.now)
        return revocation, Commit(writes=(put(STORE, value.revocation_id, revocation),))

    return reply(await context.commit(revoked), 201)


@router.get("", responses={200: {"model": ListPage[Revocation]}}, response_model=None)
async def revocations(context: Context, cursor: Cursor, limit: Limit = 50) -> Response:
    """List the revoked capabilities of the project, newest first."""
    context.require("operate")
    result = await context.fetch(List(store=STORE, limit=limit, cursor=cursor))
    return page(map(item_json, records(result.items, Revocation)), result.next_cursor)
