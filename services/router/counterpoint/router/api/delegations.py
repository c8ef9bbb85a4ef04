"""Delegations over HTTP: a person who may decide approvals lets another person decide for a time."""

from typing import Annotated

from fastapi import APIRouter, Query, Response

from counterpoint.client import Memory, put, record, records
from counterpoint.proto import subjects
from counterpoint.proto.delegations import (
    DELEGATED,
    LONGEST,
    STORE,
    Delegation,
    NewDelegation,
    delegation_id,
)
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Commit, List
from counterpoint.proto.principals import Principal
from counterpoint.router.api.body import RequestBody, item_json, json_body, reply
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.openapi import request_body
from counterpoint.router.authentication import principal_named
from counterpoint.router.paging import ListPage, page

router = APIRouter(prefix="/v1/delegations", tags=["tasks"])

DELEGATIONS_MAX = 200
"""Delegations that are read, newest first."""
DELEGATIONS_OF_ONE = 20
"""Maximum number of persons to whom one person delegates at a time."""
Name = Annotated[str, Query(description="The name of the person.")]


@router.get("", responses={200: {"model": ListPage[Delegation]}}, response_model=None)
async def delegations(context: Context) -> Response:
    """List the delegations of the project that have not ended, the newest first."""
    context.require("approve")
    memory = context.memory()
    (found,) = await memory.query(List(store=STORE, limit=DELEGATIONS_MAX))
    live = (each for each in records(found.items, Delegation) if each.until > memory.now)
    return page(map(item_json, live), None)


@router.put("", responses={200: {"model": Delegation}}, response_model=None, openapi_extra=request_body(NewDelegation))
async def set_delegation(body: Annotated[RequestBody[NewDelegation], json_body(NewDelegation, "approve")]) -> Response:
    """Let another person decide approvals in your place until a time, in place of an earlier delegation to them.

    For persons with the role `approve`; that of a deputy cannot be delegated again.
    """
    context, value = body.context, body.value
    _require_person(context.principal)
    to = await _person(context, value.to)

    async def changed(memory: Memory) -> tuple[Delegation, Commit]:
        if not memory.now < value.until <= memory.now + LONGEST:
            problem = f"must be a time in the next {LONGEST.days} days"
            raise Permanent(ErrorCode.INVALID, (Problem(field="until", problem=problem),))
        made = Delegation(
            to=to.name, until=value.until, project=context.project, by=context.principal.name, at=memory.now
        )
        existing = await memory.get(STORE, made.record_id)
        (own,) = await memory.query(List(store=STORE, where={"by": made.by}, limit=DELEGATIONS_MAX))
        live = [each for each in records(own.items, Delegation) if each.until > memory.now and each.to != made.to]
        if len(live) >= DELEGATIONS_OF_ONE:
            problem = f"you have delegated to {DELEGATIONS_OF_ONE} persons, the maximum; remove one first"
            raise Permanent(ErrorCode.INVALID, (Problem(field="to", problem=problem),))
        return made, Commit(writes=(put(STORE, made.record_id, made, existing=existing),))

    return reply(await context.commit(changed))


@router.delete("", responses={200: {"model": Delegation}}, response_model=None)
async def remove(context: Context, to: Name, by: Annotated[str | None, Query()] = None) -> Response:
    """End a delegation: your own, or with the role `admin` that of the person `by`."""
    context.require("approve")
    _require_person(context.principal)
    owner = by or context.principal.name
    if owner != context.principal.name:
        context.require("admin")

    async def removed(memory: Memory) -> tuple[Delegation, Commit]:
        item = await memory.get(STORE, delegation_id(context.project, owner, to))
        known = record(item, Delegation) if item else None
        if item is None or known is None or known.until <= memory.now:
            problem = f"{owner} has delegated nothing to them in project {context.project}"
            raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="to", problem=problem),))
        ended = known.model_copy(update={"until": memory.now})
        return ended, Commit(writes=(put(STORE, item.id, ended, existing=item),))

    return reply(await context.commit(removed))


async def require_approver(context: RequestContext) -> tuple[str, ...]:
    """Return the persons in whose place the caller may decide approvals, none for a caller with the role `approve`.

    Raises `Denied` for anyone else. Memory checks it again.
    """
    principal = context.principal
    if principal.kind != "person":
        raise Denied(ErrorCode.ROLE, "a person, to decide an approval")
    if context.may(DELEGATED) or not context.may("read"):
        context.require(DELEGATED)
        return ()
    found = await delegators(context)
    if not found:
        context.require(DELEGATED)
    return found


async def delegators(context: RequestContext) -> tuple[str, ...]:
    """Return the persons in whose place the caller may decide approvals in the project."""
    principal = context.principal
    if principal.kind != "person" or not context.may("read"):
        return ()
    # The router's own memory: the caller has no right to read delegations.
    memory = context.resources.memory(context.project, None)
    (found,) = await memory.query(List(store=STORE, where={"to": principal.name}, limit=DELEGATIONS_MAX))
    live: list[str] = []
    for delegation in records(found.items, Delegation):
        delegator = await principal_named(context.resources.memory(subjects.DEFAULT_PROJECT, None), delegation.by)
        if delegation.holds(delegator, principal, memory.now):
            live.append(delegation.by)
    return tuple(live)


async def _person(context: RequestContext, name: str) -> Principal:
    """Return the person to whom is delegated: another one, who may read the project."""
    found = await principal_named(context.resources.memory(subjects.DEFAULT_PROJECT, None), name)
    if found is None or found.kind != "person" or not found.may("read", context.project):
        problem = f"is not an active person with the role read in project {context.project}"
        raise Permanent(ErrorCode.INVALID, (Problem(field="to", problem=problem),))
    if found.name == context.principal.name:
        raise Permanent(ErrorCode.INVALID, (Problem(field="to", problem="is yourself"),))
    return found


def _require_person(principal: Principal) -> None:
    if principal.kind != "person":
        raise Denied(ErrorCode.ROLE, "a person, to delegate approvals")
