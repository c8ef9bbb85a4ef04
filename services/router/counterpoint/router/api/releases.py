"""Releases over HTTP: values that may pass the write filter, by fingerprint."""

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field, StringConstraints

from counterpoint.client import Memory, delete, put, record, records
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Commit, List, QueryResult
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.router.api.body import RequestBody, item_json, json_body, reply
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.openapi import request_body
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/releases", tags=["operate"])

STORE = "releases"
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class NewRelease(Shape):
    """A value to release, by the fingerprint in its refusal, and the reason."""

    fingerprint: Fingerprint
    reason: str = Field(min_length=1, max_length=1_000)


class Release(NewRelease):
    """A released value of the project."""

    released_by: str
    released_at: Time


@router.post(
    "",
    status_code=201,
    responses={201: {"model": Release}},
    response_model=None,
    openapi_extra=request_body(NewRelease),
)
async def create(body: Annotated[RequestBody[NewRelease], json_body(NewRelease, "operate")]) -> Response:
    """Release a value that was refused by mistake. For persons. The refused message can then be sent again."""
    context, value = body.context, body.value
    _person(context)

    async def released(memory: Memory) -> tuple[Release, Commit]:
        if (await _releases_of(memory, value.fingerprint)).items:
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="fingerprint", problem="is released already"),))
        release = Release(**value.model_dump(), released_by=context.principal.name, released_at=memory.now)
        return release, Commit(writes=(put(STORE, memory.id("release"), release),))

    return reply(await context.commit(released), 201)


@router.get("", responses={200: {"model": ListPage[Release]}}, response_model=None)
async def releases(context: Context, cursor: Cursor, limit: Limit = 50) -> Response:
    """List the released values of the project, newest first."""
    context.require("operate")
    result = await context.fetch(List(store=STORE, limit=limit, cursor=cursor))
    return page(map(item_json, records(result.items, Release)), result.next_cursor)


@router.delete("/{fingerprint}", responses={200: {"model": Release}}, response_model=None)
async def revoke(
    context: Context, fingerprint: Annotated[Id, Path(description="The value's fingerprint.")]
) -> Response:
    """Revoke a release. Records stored meanwhile stay."""
    _person(context)

    async def revoked(memory: Memory) -> tuple[Release, Commit]:
        result = await _releases_of(memory, fingerprint)
        if not result.items:
            raise Permanent(
                ErrorCode.NOT_FOUND, (Problem(field="fingerprint", problem="is not released in this project"),)
            )
        return record(result.items[0], Release), Commit(writes=tuple(delete(item) for item in result.items))

    return reply(await context.commit(revoked))


def _person(context: RequestContext) -> None:
    """Raise `Denied` unless the caller is a person who operates. Memory checks the policy again."""
    context.require("operate")
    if context.principal.kind != "person":
        raise Denied(ErrorCode.ROLE, f"a person with the role operate in project {context.project}")


async def _releases_of(memory: Memory, fingerprint: str) -> QueryResult:
    (result,) = await memory.query(List(store=STORE, where={"fingerprint": fingerprint}, limit=1000))
    return result
