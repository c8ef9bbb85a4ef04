"""Revocations over HTTP: a capability that was stolen counts no more, wherever memory runs, and after a restart."""

from fastapi import APIRouter, Request, Response
from pydantic import Field

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.memory import Commit, List
from counterpoint.proto.messages import Shape
from counterpoint.proto.records import Revocation, RevocationId
from counterpoint.recall import Memory, put, records
from counterpoint.router.bodies import Page, page, read_json, reply, shown, value_of
from counterpoint.router.desk import Asking
from counterpoint.router.openapi import takes
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1/revocations", tags=["operate"])

STORE = "revocations"


class NewRevocation(Shape):
    """A token of the project to refuse, by its revocation id, and why."""

    revocation_id: RevocationId
    reason: str = Field(min_length=1, max_length=1_000)


@router.post(
    "",
    status_code=201,
    responses={201: {"model": Revocation}},
    response_model=None,
    openapi_extra=takes(NewRevocation),
)
async def create(request: Request, asked: Asking) -> Response:
    """Refuse a token of the project from now on, and all that were made from it. There is no way back."""
    body = await read_json(request)
    asked = asked.within(body)
    asked.needs("operate")
    given = value_of(NewRevocation, body)

    async def revoked(memory: Memory) -> tuple[Revocation, Commit]:
        if await memory.get(STORE, given.revocation_id) is not None:
            raise Permanent("conflict", (Problem(field="revocation_id", problem="is revoked already"),))
        made = Revocation(**given.model_dump(), revoked_by=asked.principal.name, revoked_at=memory.now)
        return made, Commit(writes=(put(STORE, given.revocation_id, made),))

    return reply(await asked.commit(revoked), 201)


@router.get("", responses={200: {"model": Page[Revocation]}}, response_model=None)
async def revocations(asked: Asking, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """The revoked tokens of the project, newest first."""
    asked.needs("operate")
    found = await asked.look(List(store=STORE, limit=limit, cursor=int(cursor) if cursor else None))
    return page(map(shown, records(found.items, Revocation)), found.next_cursor)
