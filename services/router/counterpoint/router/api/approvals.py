"""Approvals over HTTP: those that wait for a person, and the decisions."""

from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response

from counterpoint.client import Memory, act, put, record, records, send
from counterpoint.proto.approvals import (
    STORE,
    Approval,
    ApprovalDecision,
    ApprovalState,
    Category,
    LargeAct,
    ShownApproval,
    decision_of,
)
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import Commit, Item, List
from counterpoint.proto.messages import Id, Time
from counterpoint.proto.notifications import NotificationDue
from counterpoint.router.api.body import RequestBody, item_json, json_body, reply
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.delegations import require_approver
from counterpoint.router.api.openapi import request_body
from counterpoint.router.intake.intake import signer
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1/approvals", tags=["tasks"])

ApprovalId = Annotated[Id, Path(description="The approval's id.")]


@router.get("", responses={200: {"model": ListPage[ShownApproval]}}, response_model=None)
async def approvals(
    context: Context,
    cursor: Cursor,
    state: Annotated[ApprovalState | Literal["all"], Query(description="`all` for every state.")] = "pending",
    category: Category | LargeAct | None = None,
    task_id: Annotated[Id | None, Query(description="The approvals of one task.")] = None,
    limit: Limit = 50,
) -> Response:
    """List approvals, last changed first, by default those that wait for a decision.

    An approval whose time is over is `expired` at once. A page may be shorter than `limit`; `next_cursor` tells whether
    there are more.
    """
    context.require("read", "approve")
    # The record of an approval that nobody decided stays pending until its timer is handled.
    stored = None if state in ("all", "expired") else state
    filters = {"state": stored, "category": category, "task_id": task_id}
    where = {name: value for name, value in filters.items() if value is not None}
    memory = context.memory()
    found = await context.fetch(List(store=STORE, where=where, limit=limit, cursor=cursor))
    listed = [_shown(approval, memory.now) for approval in records(found.items, Approval)]
    return page((item_json(one) for one in listed if state in ("all", one.state)), found.next_cursor)


@router.get("/{approval_id}", responses={200: {"model": ShownApproval}}, response_model=None)
async def approval(context: Context, approval_id: ApprovalId) -> Response:
    """Return an approval with the text to approve."""
    return reply(await read_approval(context, approval_id))


async def read_approval(context: RequestContext, approval_id: str) -> ShownApproval:
    """Return an approval with the text to approve. Raises `Denied`, and `Permanent` `not_found`."""
    context.require("read", "approve")
    return await _read(context, context.memory(), approval_id)


async def read_own(context: RequestContext, approval_id: str) -> ShownApproval:
    """Return the approval that the caller has just asked for, whatever their roles. Raises `Permanent` `not_found`."""
    return await _read(context, context.resources.memory(context.project, None), approval_id)


async def _read(context: RequestContext, memory: Memory, approval_id: str) -> ShownApproval:
    item = await memory.get(STORE, approval_id)
    if item is None:
        raise _unknown(context.project)
    return _shown(record(item, Approval), memory.now)


@router.post(
    "/{approval_id}",
    responses={200: {"model": ShownApproval}},
    response_model=None,
    openapi_extra=request_body(ApprovalDecision),
)
async def decide(
    body: Annotated[RequestBody[ApprovalDecision], json_body(ApprovalDecision)], approval_id: ApprovalId
) -> Response:
    """Approve or reject, as a person. `artifact_sha256` is the hash of the text that was read.

    The first decision is final: another is refused with 409 and the name of the person who decided. The same decision
    again by the same person changes nothing. A rejection needs a reason.
    """
    return reply(await decide_approval(body.context, approval_id, body.value))


async def decide_approval(context: RequestContext, approval_id: str, decision: ApprovalDecision) -> ShownApproval:
    """Commit a decision. Raises `Denied` for anyone but a person who may approve, or a deputy of one, and `Permanent`
    `not_found` or `conflict`."""
    principal, delegators = context.principal, await require_approver(context)

    async def decided(memory: Memory) -> tuple[Approval, Commit]:
        item = await memory.get(STORE, approval_id)
        if item is None:
            raise _unknown(context.project)
        before = record(item, Approval)
        after = before.decided(decision, principal.name, principal.kind, memory.now, delegators)
        return after, Commit() if after is before else _commit(context, memory, item, after)

    return _shown(await context.commit(decided), context.memory().now)


def _commit(context: RequestContext, memory: Memory, item: Item, after: Approval) -> Commit:
    write = put(STORE, after.approval_id, after, existing=item)
    if after.task_id is None:
        # A large act, which memory does when it is asked for again. It is on no line.
        return Commit(writes=(write,))
    message = decision_of(after)
    assert message is not None
    place = f" in the place of {after.decided_for}" if after.decided_for else ""
    reasoning = after.reason or f"{message.decision} by {message.by}{place}"
    action = act(memory, signer("person"), "approval", reasoning, task_id=after.task_id, result=message.decision)
    writes = write, put("actions", action.action_id, action)
    messages = [send(message)]
    if context.resources.has_receivers:
        # Told by a step of its own: the decision rests on the approval alone, and what receivers are told on the task.
        messages.append(send(NotificationDue(delivery_id=after.approval_id, turn=1, approval_id=after.approval_id)))
    return Commit(writes=writes, messages=tuple(messages))


def _shown(approval: Approval, now: Time) -> ShownApproval:
    shown = {name: getattr(approval, name) for name in ShownApproval.model_fields}
    return ShownApproval.model_validate(shown | {"state": approval.state_at(now)})


def _unknown(project: str) -> Permanent:
    problem = f"is not an approval of project {project}; select another with `project` or `--project`"
    return Permanent(ErrorCode.NOT_FOUND, (Problem(field="approval_id", problem=problem),))
