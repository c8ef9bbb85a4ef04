"""Approvals of calls by tools of principals: a limit refused one, and a person may lift it (docs/approvals.md).

The task goes on meanwhile: no result of it is held. The spending record of the task names the approval, so that many
refused calls ask once.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from counterpoint.client import Memory, put, record
from counterpoint.guard.policy import ApprovalPolicy
from counterpoint.manager.approvals import reminder_text, requested
from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.manager.gateway.lifts import lifts_for
from counterpoint.manager.spend_lifts import lifted, read_counted
from counterpoint.manager.task_history import TaskHistory
from counterpoint.manager.task_update import ReasoningStep, TaskUpdate, UpdateAndWrites, without_effect
from counterpoint.proto.approvals import (
    STORE,
    Approval,
    ApprovalDecided,
    Lift,
    RefusedCall,
    artifact_sha256,
    lifts_as_text,
)
from counterpoint.proto.memory import Write
from counterpoint.proto.tasks import Task


async def on_tool_refused(memory: Memory, history: TaskHistory, policy: ApprovalPolicy) -> UpdateAndWrites:
    """Ask a person to lift the limits that refused a call of a tool, unless that was asked already."""
    task, spend = history.task, history.spend
    refused = spend.tool_refused
    if history.workflow_state.ended or refused is None or refused.principal is None:
        return without_effect(history, "a refused call of a tool"), ()
    if spend.ask_again_at is not None and memory.now < spend.ask_again_at:
        return without_effect(history, f"a refused call: approval {spend.tool_approval} asks about one"), ()
    if policy.act("spend", task.autonomy, task.project) != "ask":
        return without_effect(history, f"a refused call of a tool: {task.autonomy} tasks ask for no lift"), ()
    lifts = lifts_for(refused, await read_counted(memory, task, refused.principal))
    if not lifts:
        return without_effect(history, "a refused call of a tool that no lift would cover"), ()
    approval = _approval(memory, task, refused, lifts, policy)
    fields = {"tool_approval": approval.approval_id, "ask_again_at": approval.expires_at}
    update = TaskUpdate(
        steps=(ReasoningStep("approval", f"{approval.summary}; a person may lift the limit"),),
        decision="ask for approval: spend",
        messages=(requested(approval),),
        approvals=(approval,),
        reminder=_next_reminder(approval, memory.now),
    )
    return update, (put("spend", task.task_id, spend.model_copy(update=fields), existing=history.spend_item),)


async def on_tool_due(memory: Memory, history: TaskHistory, approval_id: str | None) -> TaskUpdate:
    """Repeat the request of an approval for a tool that nobody has decided, and wait for the next reminder."""
    spend = history.spend
    item = None
    if not history.workflow_state.ended and approval_id is not None and spend.tool_approval == approval_id:
        item = await memory.get(STORE, approval_id)
    approval = record(item, Approval) if item else None
    number = sum(at <= memory.now for at in approval.remind_at) if approval else 0
    if approval is None or approval.state_at(memory.now) != "pending" or not number:
        return without_effect(history, f"a reminder of approval {approval_id}")
    return TaskUpdate(
        steps=(ReasoningStep("approval", reminder_text(approval, number)),),
        decision=f"remind of an approval: {approval.category}",
        messages=(requested(approval, number),),
        reminder=_next_reminder(approval, memory.now),
    )


def _next_reminder(approval: Approval, now: datetime) -> tuple[str, datetime] | None:
    at = min((each for each in approval.remind_at if each > now), default=None)
    return (approval.approval_id, at) if at else None


async def on_tool_decided(memory: Memory, history: TaskHistory, message: ApprovalDecided) -> UpdateAndWrites | None:
    """Lift the limits that a person approved to lift for a tool. None for an approval of another act, or after the end
    of the task.

    A limit that has changed since it was shown is not lifted, and the next refused call asks again.
    """
    if history.workflow_state.ended or history.spend.tool_approval != message.approval_id:
        return None
    item = await memory.get(STORE, message.approval_id)
    approval = record(item, Approval) if item else None
    if item is None or approval is None or approval.state != "approved" or not approval.is_intact:
        return without_effect(history, f"a decision on approval {message.approval_id} by {message.by}"), ()
    principal = approval.refused.principal if approval.refused else None
    counted = await read_counted(memory, history.task, principal or "")
    lifting = lifted(counted, approval.lifts)
    after = approval.applied() if lifting else approval.abandoned("a limit has changed since it was shown")
    update = _after_decision(after, principal)
    return update, (put(STORE, after.approval_id, after, existing=item), *_without_request(history, lifting))


def _without_request(history: TaskHistory, writes: Sequence[Write]) -> tuple[Write, ...]:
    """Return writes that lift limits, with the spending record of the task after the decision."""
    task_id, item = history.task.task_id, history.spend_item
    own = next((write for write in writes if write.id == task_id), None)
    spend = history.spend if own is None else SpendRecord.model_validate(own.body)
    after = spend.model_copy(update={"tool_refused": None, "tool_approval": None, "ask_again_at": None})
    return (*(write for write in writes if write is not own), put("spend", task_id, after, existing=item))


def _after_decision(approval: Approval, principal: str | None) -> TaskUpdate:
    reasoning = f"{approval.decided_by} lifted limits for the tools of {principal}"
    if approval.state != "applied":
        reasoning = f"approval {approval.approval_id} does not apply: {approval.reason}"
    return TaskUpdate(steps=(ReasoningStep("approval", reasoning),), decision=f"approval {approval.state}: spend")


def _approval(
    memory: Memory, task: Task, refused: RefusedCall, lifts: tuple[Lift, ...], policy: ApprovalPolicy
) -> Approval:
    artifact = lifts_as_text(lifts)
    return Approval(
        approval_id=memory.id("approval"),
        project=task.project,
        task_id=task.task_id,
        category="spend",
        autonomy=task.autonomy,
        summary=f"a limit refused a call of a tool of {refused.principal} ({task.autonomy})",
        artifact=artifact,
        artifact_sha256=artifact_sha256(artifact),
        requested_at=memory.now,
        expires_at=memory.now + timedelta(seconds=policy.expires_s),
        remind_at=tuple(memory.now + timedelta(seconds=each) for each in policy.remind_s),
        lifts=lifts,
        refused=refused,
    )
