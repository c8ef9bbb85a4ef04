"""Approvals of a task: results that are held, and what becomes of them when a person has decided (docs/approvals.md).

Pure. While the task waits, the developer's result is kept in the approval. A lifted limit sends the task back to work;
a limit that is not lifted releases the result made without the call; an approved proposal is offered.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from counterpoint.guard.policy import ApprovalPolicy
from counterpoint.manager.developer_results import apply_result, decided_reason, in_shadow, resumed_messages
from counterpoint.manager.escalation import escalate_budget, escalate_rejection, escalation_message
from counterpoint.manager.plans import documents_text, without_plans
from counterpoint.manager.task_history import TaskHistory
from counterpoint.manager.task_update import (
    ReasoningStep,
    TaskUpdate,
    delegate_next,
    with_attempt,
    with_transition,
    without_effect,
)
from counterpoint.manager.workflow import AWAITS_APPROVAL, AWAITS_DOCUMENTS, WORKING, WorkflowEvent, transition
from counterpoint.proto.approvals import (
    Approval,
    ApprovalRequested,
    Category,
    Lift,
    PendingApproval,
    RefusedCall,
    artifact_sha256,
    lifts_as_text,
    search_as_text,
)
from counterpoint.proto.findings import Findings
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import Task, TaskResumed, TaskWorked
from counterpoint.proto.words import quantity


@dataclass(frozen=True, slots=True)
class HeldAct:
    """An act that waits for a person, with the exact text to approve."""

    category: Category
    artifact: str
    lifts: tuple[Lift, ...] = ()
    refused: RefusedCall | None = None


def held_call(refused: RefusedCall, lifts: tuple[Lift, ...]) -> HeldAct:
    """Return the act of lifting limits for a refused call."""
    return HeldAct("spend", lifts_as_text(lifts), lifts, refused)


def is_current(history: TaskHistory, message: TaskWorked) -> bool:
    """Whether a result is the one that the task waits for, and would take it further."""
    state = history.workflow_state
    decides = state == WORKING or (state == AWAITS_DOCUMENTS and message.outcome != "stopped")
    return decides and message.attempt == history.task.attempt


def held_proposal(history: TaskHistory, message: TaskWorked, policy: ApprovalPolicy) -> HeldAct | None:
    """Return the act of offering a proposal, if it needs an approval."""
    task = history.task
    if message.outcome != "proposed" or message.text is None or in_shadow(task):
        return None
    if policy.act("proposal", task.autonomy, task.project) != "ask":
        return None
    return HeldAct("proposal", message.text)


def held_search(history: TaskHistory, message: TaskWorked, policy: ApprovalPolicy) -> HeldAct | None:
    """Return the act of searching the web for a result that was made without it, if it needs an approval."""
    task = history.task
    if not message.wanted_search or message.wanted_search == task.permitted_search:
        return None
    if policy.act("web", task.autonomy, task.project) != "ask":
        return None
    return HeldAct("web", search_as_text(message.wanted_search))


def held_documents(history: TaskHistory, message: TaskWorked, policy: ApprovalPolicy) -> HeldAct | None:
    """Return the act of storing the documents of a result, if it needs an approval."""
    task = history.task
    if not message.plans or policy.act("document", task.autonomy, task.project) != "ask":
        return None
    return HeldAct("document", documents_text(message))


def permitted(history: TaskHistory, message: TaskWorked, policy: ApprovalPolicy) -> TaskWorked:
    """Return a result without documents if the policy refuses to store them."""
    task = history.task
    if not message.plans or policy.act("document", task.autonomy, task.project) != "refuse":
        return message
    return without_plans(message, "the policy of this project does not let agents store documents")


def hold(
    history: TaskHistory, message: TaskWorked, act: HeldAct, approval_id: str, now: datetime, policy: ApprovalPolicy
) -> TaskUpdate:
    """Keep a result and ask a person for the act."""
    is_spend, is_shown = act.category == "spend", act.category in ("spend", "web")
    row = transition(history.workflow_state, WorkflowEvent.OVER_LIMIT if is_spend else WorkflowEvent.HELD)
    if row is None:
        return without_effect(history, f"work of attempt {message.attempt} that needs an approval")
    approval = _approval(history, message, act, approval_id, now, policy)
    escalation = escalate_budget(history.task, act.lifts) if is_spend else None
    findings = message.findings if is_shown else Findings(downstream=message.findings.downstream)
    task = with_transition(
        history.task,
        row,
        now,
        proposal=message.text if is_shown else None,
        confidence=message.confidence,
        findings=findings,
        escalation=escalation,
        approval=_pending(approval),
    )
    messages: tuple[Message, ...] = (*resumed_messages(history, message), requested(approval))
    if escalation:
        messages += (escalation_message(task),)
    earlier = (history.approval[0],) if history.approval else ()
    return TaskUpdate(
        steps=(ReasoningStep("approval", f"{approval.summary}; attempt {message.attempt} is held for a person"),),
        decision=f"ask for approval: {act.category}",
        confidence=message.confidence,
        task=task,
        messages=messages,
        approvals=(*earlier, approval),
    )


def ask_again(
    history: TaskHistory, act: HeldAct, approval_id: str, now: datetime, policy: ApprovalPolicy
) -> TaskUpdate:
    """Ask for another approval, because the subject of the approved one has changed."""
    row = transition(history.workflow_state, WorkflowEvent.CHANGED)
    if row is None or history.approval is None:
        return without_effect(history, "an approval")
    before = history.approval[0]
    message = TaskWorked.model_validate(before.held)
    approval = _approval(history, message, act, approval_id, now, policy)
    why = "a limit has changed since it was shown"
    task = with_transition(
        history.task, row, now, escalation=escalate_budget(history.task, act.lifts), approval=_pending(approval)
    )
    return TaskUpdate(
        steps=(ReasoningStep("approval", f"approval {before.approval_id} does not apply: {why}"),),
        decision=f"ask for approval again: {act.category}",
        task=task,
        messages=(requested(approval),),
        approvals=(before.abandoned(why), approval),
    )


def lift(history: TaskHistory, now: datetime, *, applied: bool) -> TaskUpdate:
    """Send the task back to work under lifted limits; `applied` is false if a person raised them meanwhile."""
    row = transition(history.workflow_state, WorkflowEvent.LIFTED)
    if row is None or history.approval is None:
        return without_effect(history, "an approval")
    approval = history.approval[0]
    after = approval.applied() if applied else approval.abandoned("the limits were raised meanwhile")
    return _resume_after(history, with_attempt(history.task, row, now, history.next_attempt), after)


def permit_search(history: TaskHistory, approval: Approval, now: datetime) -> TaskUpdate | None:
    """Send the task back to work with a permitted search; None if the words are not those that were approved."""
    row = transition(history.workflow_state, WorkflowEvent.LIFTED)
    query = TaskWorked.model_validate(approval.held).wanted_search
    if row is None or query is None or search_as_text(query) != approval.artifact:
        return None
    task = with_attempt(history.task, row, now, history.next_attempt, permitted_search=query)
    return _resume_after(history, task, approval.applied())


def _resume_after(history: TaskHistory, task: Task, approval: Approval) -> TaskUpdate:
    """Delegate the next attempt after an approval."""
    decision = f"resume with attempt {history.next_attempt}"
    return replace(delegate_next(history, task, decision, decided_reason(history)), approvals=(approval,))


def release(history: TaskHistory, approval: Approval, now: datetime) -> TaskUpdate:
    """Go on with the held result: an approved proposal, documents to store, or what was made without the refused call.

    Only exactly the documents that were approved are stored.
    """
    message, history = TaskWorked.model_validate(approval.held), decided(history, approval)
    if approval.category == "document" and not (
        approval.decision == "approved" and documents_text(message) == approval.artifact
    ):
        message = without_plans(message, "the documents were not approved, so none is stored")
    if approval.category == "proposal":
        shown = {"text": approval.artifact, "artifact_sha256": approval.artifact_sha256}
        message = message.model_copy(update=shown)
    update = apply_result(history, message, now)
    return replace(update, approvals=(approval.applied(),))


def drop(history: TaskHistory, approval: Approval | None, now: datetime) -> TaskUpdate:
    """Escalate a task whose proposal was rejected, or not approved in time, or whose approval has no record any
    more."""
    row = transition(history.workflow_state, WorkflowEvent.NOT_APPROVED)
    if row is None:
        return without_effect(history, "an approval")
    history = decided(history, approval) if approval else history
    reason = decided_reason(history)
    escalation = escalate_rejection(history.task, reason)
    task = with_transition(history.task, row, now, escalation=escalation)
    return TaskUpdate(
        steps=(ReasoningStep("escalate", f"{reason}: the proposal is not offered"),),
        decision=f"escalate to {escalation.to}: {escalation.code}",
        task=task,
        messages=(TaskResumed(task_id=task.task_id, reason=reason), escalation_message(task)),
        approvals=(approval,) if approval else (),
    )


def remind(approval: Approval, now: datetime) -> TaskUpdate:
    """Repeat the request of an approval that nobody has decided, if a reminder is due, and wait for the next one."""
    pending, number = _pending(approval), sum(at <= now for at in approval.remind_at)
    said = reminder_text(approval, number)
    return TaskUpdate(
        steps=(ReasoningStep("approval", said if number else f"approval {approval.approval_id} waits"),),
        decision=f"remind of an approval: {approval.category}" if number else None,
        messages=(requested(approval, number),) if number else (),
        timers=(("approval", pending.next_check(now)),),
    )


def reminder_text(approval: Approval, number: int) -> str:
    """Return what the line says of a reminder."""
    ends = f"which ends at {approval.expires_at}"
    return f"reminder {number}: nobody has decided on approval {approval.approval_id}, {ends}"


def awaited(history: TaskHistory, approval_id: str | None = None) -> Approval | None:
    """Return the approval that the task waits for, if it is the one with this id."""
    if history.workflow_state != AWAITS_APPROVAL or history.approval is None:
        return None
    approval = history.approval[0]
    return approval if approval_id in (None, approval.approval_id) else None


def decided(history: TaskHistory, approval: Approval) -> TaskHistory:
    """Return the history with the approval after its decision."""
    return replace(history, approval=(approval, history.approval[1])) if history.approval else history


def _approval(
    history: TaskHistory, message: TaskWorked, act: HeldAct, approval_id: str, now: datetime, policy: ApprovalPolicy
) -> Approval:
    task = history.task
    what = {
        "spend": "a limit refused a model call",
        "proposal": f"attempt {message.attempt} is proposed",
        "web": f"attempt {message.attempt} would search the web",
        "document": f"attempt {message.attempt} has {quantity(len(message.plans), 'document')} to store",
    }[act.category]
    return Approval(
        approval_id=approval_id,
        project=task.project,
        task_id=task.task_id,
        category=act.category,
        autonomy=task.autonomy,
        summary=f"{what} ({task.autonomy})",
        artifact=act.artifact,
        artifact_sha256=artifact_sha256(act.artifact),
        requested_at=now,
        expires_at=now + timedelta(seconds=policy.expires_s),
        remind_at=tuple(now + timedelta(seconds=each) for each in policy.remind_s),
        lifts=act.lifts,
        refused=act.refused,
        held=message.model_dump(
            mode="json", exclude_none=True, exclude={"text"} if act.category == "proposal" else None
        ),
    )


def _pending(approval: Approval) -> PendingApproval:
    return PendingApproval.model_validate({name: getattr(approval, name) for name in PendingApproval.model_fields})


def requested(approval: Approval, reminder: int = 0) -> ApprovalRequested:
    """Return the message that asks for an approval."""
    shown = {name: getattr(approval, name) for name in ApprovalRequested.model_fields if name != "reminder"}
    return ApprovalRequested.model_validate(shown | {"reminder": reminder})
