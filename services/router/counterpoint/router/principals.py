"""Principals over HTTP: who may ask. For administrators."""

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field, StringConstraints

from counterpoint.guard.names import is_harmless, kept_fields
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.memory import Commit, List
from counterpoint.proto.messages import ProjectName, Shape
from counterpoint.proto.principals import Principal, PrincipalKind, Role
from counterpoint.proto.validation import unknown_fields
from counterpoint.recall import Memory, put, readable, records
from counterpoint.router.askers import STORE, token_id
from counterpoint.router.bodies import Page, page, read_json, reply, shown, value_of
from counterpoint.router.desk import Asking
from counterpoint.router.openapi import takes
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1/principals", tags=["operate"])

_TOKEN_BYTES = 32
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$")]


class NewPrincipal(Shape):
    """A principal to create. `projects` holds names, or `*` for all; `approve` is for persons."""

    name: Name
    kind: PrincipalKind
    projects: tuple[ProjectName | Annotated[str, StringConstraints(pattern=r"^\*$")], ...] = Field(min_length=1)
    roles: tuple[Role, ...] = Field(min_length=1)


class CreatedPrincipal(Shape):
    """A principal and its token, which is shown this once and kept nowhere."""

    principal: Principal
    token: str
    ignored: tuple[str, ...] = ()


@router.post(
    "",
    status_code=201,
    responses={201: {"model": CreatedPrincipal}},
    response_model=None,
    openapi_extra=takes(NewPrincipal),
)
async def create(request: Request, asked: Asking) -> Response:
    """Create a principal with a token of its own."""
    asked.needs("admin")
    body = await read_json(request)
    given = value_of(NewPrincipal, body)
    if "approve" in given.roles and given.kind != "person":
        raise Permanent("invalid", (Problem(field="roles", problem="approve is for persons"),))
    if not is_harmless(given.name):
        problem = "holds what looks like a secret, and everybody reads it"
        raise Permanent("sensitive", (Problem(field="name", problem=problem),))
    token = secrets.token_urlsafe(_TOKEN_BYTES)

    async def created(memory: Memory) -> tuple[Principal, Commit]:
        (found,) = await memory.query(List(store=STORE, where={"name": given.name}, limit=1000))
        if any(principal.revoked_at is None for principal in records(found.items, Principal)):
            raise Permanent("conflict", (Problem(field="name", problem="is that of another principal"),))
        principal = Principal(**given.model_dump(), created_at=memory.now)
        return principal, Commit(writes=(put(STORE, token_id(token), principal),))

    principal = await asked.commit(created)
    asked.desk.askers.forget()
    made = CreatedPrincipal(principal=principal, token=token, ignored=kept_fields(unknown_fields(NewPrincipal, body)))
    return reply(made, 201, {"Cache-Control": "no-store"})


@router.get("", responses={200: {"model": Page[Principal]}}, response_model=None)
async def principals(asked: Asking, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Principals that may act in the project, newest first, the revoked ones too; all of them for who administers all.

    A page may hold fewer than `limit`.
    """
    asked.needs("admin")
    found = await asked.look(List(store=STORE, limit=limit, cursor=int(cursor) if cursor else None))
    known = records(found.items, Principal)
    if "*" not in asked.principal.projects:
        known = [one for one in known if {asked.project, "*"} & {*one.projects}]
    return page(map(shown, known), found.next_cursor)


@router.delete("/{name}", responses={200: {"model": Principal}}, response_model=None)
async def revoke(asked: Asking, name: Annotated[Name, Path(description="The principal's name.")]) -> Response:
    """Revoke a principal: its token counts no more. Nobody revokes themselves, so an administrator is always left."""
    asked.needs("admin")
    if name == asked.principal.name:
        raise Permanent("conflict", (Problem(field="name", problem="is your own"),))

    async def revoked(memory: Memory) -> tuple[Principal, Commit]:
        (found,) = await memory.query(List(store=STORE, where={"name": name}, limit=1000))
        live = [(item, one) for item, one in readable(found.items, Principal) if one.revoked_at is None]
        if not live:
            raise Permanent("not_found", (Problem(field="name", problem="is no principal that is not revoked"),))
        ended: dict[str, Any] = {"revoked_at": memory.now}
        changed = [(item, one.model_copy(update=ended)) for item, one in live]
        return changed[0][1], Commit(writes=tuple(put(STORE, item.id, each, seen=item) for item, each in changed))

    principal = await asked.commit(revoked)
    asked.desk.askers.forget()
    return reply(principal)
