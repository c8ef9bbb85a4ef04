"""Releases over HTTP: a person says of a value, by its fingerprint, that it may pass the write filter."""

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field, StringConstraints

from counterpoint.proto.errors import Denied, Permanent, Problem
from counterpoint.proto.memory import Commit, Found, List
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.recall import Memory, delete, put, record, records
from counterpoint.router.bodies import Page, page, read_json, reply, shown, value_of
from counterpoint.router.desk import Asked, Asking
from counterpoint.router.openapi import takes
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1/releases", tags=["operate"])

STORE = "releases"
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{16}$")]


class NewRelease(Shape):
    """A value to let pass, by the fingerprint that its refusal named, and why it may."""

    fingerprint: Fingerprint
    reason: str = Field(min_length=1, max_length=1_000)


class Release(NewRelease):
    """A value that passes in this project, who let it and when."""

    released_by: str
    released_at: Time


@router.post(
    "",
    status_code=201,
    responses={201: {"model": Release}},
    response_model=None,
    openapi_extra=takes(NewRelease),
)
async def create(request: Request, asked: Asking) -> Response:
    """Let a value pass that was refused by mistake. For persons; what was refused can be sent or retried now."""
    body = await read_json(request)
    asked = asked.within(body)
    _person(asked)
    given = value_of(NewRelease, body)

    async def released(memory: Memory) -> tuple[Release, Commit]:
        if (await _of(memory, given.fingerprint)).items:
            raise Permanent("conflict", (Problem(field="fingerprint", problem="is released already"),))
        made = Release(**given.model_dump(), released_by=asked.principal.name, released_at=memory.now)
        return made, Commit(writes=(put(STORE, memory.id("release"), made),))

    return reply(await asked.commit(released), 201)


@router.get("", responses={200: {"model": Page[Release]}}, response_model=None)
async def releases(asked: Asking, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """What passes in the project, newest first."""
    asked.needs("operate")
    found = await asked.look(List(store=STORE, limit=limit, cursor=int(cursor) if cursor else None))
    return page(map(shown, records(found.items, Release)), found.next_cursor)


@router.delete("/{fingerprint}", responses={200: {"model": Release}}, response_model=None)
async def revoke(asked: Asking, fingerprint: Annotated[Id, Path(description="The value's fingerprint.")]) -> Response:
    """Take a release back: the value is refused again. What was kept meanwhile stays."""
    _person(asked)

    async def revoked(memory: Memory) -> tuple[Release, Commit]:
        found = await _of(memory, fingerprint)
        if not found.items:
            raise Permanent("not_found", (Problem(field="fingerprint", problem="is not released in this project"),))
        return record(found.items[0], Release), Commit(writes=tuple(delete(item) for item in found.items))

    return reply(await asked.commit(revoked))


def _person(asked: Asked) -> None:
    """Raises `Denied` for all but persons; memory decides again by the policy."""
    asked.needs("operate")
    if asked.principal.kind != "person":
        raise Denied("role", f"a person with the role operate in project {asked.project}")


async def _of(memory: Memory, fingerprint: str) -> Found:
    (found,) = await memory.query(List(store=STORE, where={"fingerprint": fingerprint}, limit=1000))
    return found
