"""Principals over HTTP, for administrators."""

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import Field, StringConstraints

from counterpoint.client import Memory, put, readable, records
from counterpoint.guard.names import has_secret
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Commit, List
from counterpoint.proto.messages import ProjectName, Shape, Time
from counterpoint.proto.principals import Principal, PrincipalKind, Role
from counterpoint.router.api.body import RequestBody, item_json, json_body, reply
from counterpoint.router.api.context import Context
from counterpoint.router.api.openapi import request_body
from counterpoint.router.authentication import STORE, token_id
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/principals", tags=["operate"])

_TOKEN_BYTES = 32
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,62}$")]


class NewPrincipal(Shape):
    """A principal to create. `projects` holds names, or `*` for all; `approve` is for persons. Without `expires_at` its
    token is valid until it is revoked."""

    name: Name
    kind: PrincipalKind
    projects: tuple[ProjectName | Annotated[str, StringConstraints(pattern=r"^\*$")], ...] = Field(min_length=1)
    roles: tuple[Role, ...] = Field(min_length=1)
    expires_at: Time | None = None


class CreatedPrincipal(Shape):
    """A principal and its token. The token is not stored and cannot be shown again."""

    principal: Principal
    token: str
    ignored: tuple[str, ...] = ()


@router.post(
    "",
    status_code=201,
    responses={201: {"model": CreatedPrincipal}},
    response_model=None,
    openapi_extra=request_body(NewPrincipal),
)
async def create(
    body: Annotated[RequestBody[NewPrincipal], json_body(NewPrincipal, "admin", project_field=False)],
) -> Response:
    """Create a principal with a new token."""
    context, value = body.context, body.value
    if "approve" in value.roles and value.kind != "person":
        raise Permanent(ErrorCode.INVALID, (Problem(field="roles", problem="approve is for persons"),))
    if has_secret(value.name):
        problem = "contains what looks like a secret; names are public"
        raise Permanent(ErrorCode.SENSITIVE, (Problem(field="name", problem=problem),))
    token = secrets.token_urlsafe(_TOKEN_BYTES)

    async def created(memory: Memory) -> tuple[Principal, Commit]:
        (result,) = await memory.query(List(store=STORE, where={"name": value.name}, limit=1000))
        if any(principal.revoked_at is None for principal in records(result.items, Principal)):
            raise Permanent(ErrorCode.CONFLICT, (Problem(field="name", problem="is already taken"),))
        if value.expires_at is not None and value.expires_at <= memory.now:
            raise Permanent(ErrorCode.INVALID, (Problem(field="expires_at", problem="is in the past"),))
        principal = Principal(**value.model_dump(), created_at=memory.now)
        return principal, Commit(writes=(put(STORE, token_id(token), principal),))

    principal = await context.commit(created)
    context.resources.authenticator.forget()
    result = CreatedPrincipal(principal=principal, token=token, ignored=body.ignored)
    return reply(result, 201, {"Cache-Control": "no-store"})


@router.get("", responses={200: {"model": ListPage[Principal]}}, response_model=None)
async def principals(context: Context, cursor: Cursor, limit: Limit = 50) -> Response:
    """List the principals of the project, newest first, with revoked ones; all for an administrator of all projects.

    A page may hold fewer than `limit`.
    """
    context.require("admin")
    result = await context.fetch(List(store=STORE, limit=limit, cursor=cursor))
    visible = records(result.items, Principal)
    if "*" not in context.principal.projects:
        visible = [principal for principal in visible if {context.project, "*"} & {*principal.projects}]
    return page(map(item_json, visible), result.next_cursor)


@router.delete("/{name}", responses={200: {"model": Principal}}, response_model=None)
async def revoke(context: Context, name: Annotated[Name, Path(description="The principal's name.")]) -> Response:
    """Revoke a principal and its token. Callers cannot revoke themselves, so one administrator always remains."""
    context.require("admin")
    if name == context.principal.name:
        raise Permanent(ErrorCode.CONFLICT, (Problem(field="name", problem="is your own"),))

    async def revoked(memory: Memory) -> tuple[Principal, Commit]:
        (result,) = await memory.query(List(store=STORE, where={"name": name}, limit=1000))
        live = [
            (item, principal) for item, principal in readable(result.items, Principal) if principal.revoked_at is None
        ]
        if not live:
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="name", problem="is not an active principal"),))
        ended: dict[str, Any] = {"revoked_at": memory.now}
        changed = [(item, principal.model_copy(update=ended)) for item, principal in live]
        return changed[0][1], Commit(writes=tuple(put(STORE, item.id, each, existing=item) for item, each in changed))

    principal = await context.commit(revoked)
    context.resources.authenticator.forget()
    return reply(principal)
