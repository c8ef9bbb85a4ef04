"""Results of the developer: answers, proposals, stops and reassessments (docs/workflow.md)."""

import hashlib
from datetime import datetime
from typing import Any

from counterpoint.manager.attempts import with_attempts
from counterpoint.manager.escalation import escalate_stop, escalate_trigger, guard_for_needs
from counterpoint.manager.knowledge import describe_confidence, has_risen
from counterpoint.manager.plans import artifacts_of, plans_of
from counterpoint.manager.task_history import TaskHistory
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.task_update import ReasoningStep, TaskUpdate, with_attempt, with_transition, without_effect
from counterpoint.manager.timers import next_reassessment
from counterpoint.manager.triggers import Trigger
from counterpoint.manager.workflow import AWAITS_APPROVAL, AWAITS_DOCUMENTS, WORKING, WorkflowEvent, transition
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.findings import Findings
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import Task, TaskCompleted, TaskEscalated, TaskProposed, TaskResumed, TaskWorked
from counterpoint.proto.words import quantity

SHADOW_TEXT = "Nothing is proposed: incidents of this job are in shadow. Report what fixed it."


def on_worked(
    history: TaskHistory, message: TaskWorked, now: datetime, limits: TaskLimits, *, recently_ingested: bool
) -> TaskUpdate:
    """Return the update for a result of the developer. `newly_known`: documents were ingested meanwhile.

    It is the result of the attempt for a working task, and a reassessment for one that waits for documents.
    Raises `Permanent` for an outcome without its text, or an unknown outcome.
    """
    if history.workflow_state not in (WORKING, AWAITS_DOCUMENTS) or message.attempt != history.task.attempt:
        return without_effect(history, f"work of attempt {message.attempt} ({message.outcome})")
    reassess = recently_ingested and history.task.resumes < limits.max_resumes
    return apply_result(history, message, now, next_reassessment(now, limits) if reassess else None)


def returned(history: TaskHistory, message: TaskWorked, now: datetime) -> TaskUpdate | None:
    """Delegate the attempt once more for the objections of the reviewer; None for a result that may leave.

    Work is returned once. A second return is treated as a result.
    """
    task = history.task
    if not message.objections or task.objections or message.attempt != task.attempt:
        return None
    row = transition(history.workflow_state, WorkflowEvent.RETURNED)
    if row is None:
        return None
    reasons = "; ".join(each.reason for each in message.objections)
    return TaskUpdate(
        steps=(ReasoningStep("plan", f"the reviewer returned attempt {message.attempt}: {reasons}"),),
        decision=f"delegate attempt {message.attempt} again",
        confidence=message.confidence,
        task=with_transition(task, row, now, objections=message.objections),
        delegate="work",
    )


def handed_over(history: TaskHistory, message: TaskWorked, trigger: Trigger, now: datetime) -> TaskUpdate:
    """Escalate to the calling LLM with a result that is not offered: its attempt can have caused no success."""
    row = transition(history.workflow_state, WorkflowEvent.TAKEN_OVER)
    if row is None:
        return without_effect(history, f"work of attempt {message.attempt}")
    message = _without_hidden(history.task, message)
    escalation = escalate_trigger(history.task, trigger)
    attempt = history.attempts.get(message.attempt)
    learned = (attempt[0].model_copy(update={"shadow": True}),) if attempt and message.outcome == "proposed" else ()
    task = with_transition(history.task, row, now, escalation=escalation, **_shown(history, message))
    return TaskUpdate(
        steps=(
            ReasoningStep("escalate", f"attempt {message.attempt} is not offered ({trigger.code}): {trigger.what}"),
        ),
        decision=f"escalate to {escalation.to}: {escalation.code}",
        confidence=message.confidence,
        task=task,
        messages=(*resumed_messages(history, message), _escalated(task, message)),
        learned=learned,
    )


def apply_result(
    history: TaskHistory, message: TaskWorked, now: datetime, reassess_at: datetime | None = None
) -> TaskUpdate:
    """Return the update for a result, also for one that was held until an approval was decided.

    `reassess_at`: when a stop is assessed again. Raises as `on_worked`.
    """
    match message.outcome:
        case "answered":
            return _answered(history, message, now)
        case "proposed":
            return _proposed(history, message, now)
        case "stopped" if history.workflow_state in (WORKING, AWAITS_APPROVAL):
            return _stopped(history, message, now, reassess_at=reassess_at)
        case "stopped":
            return _reassessed(history, message, now)
        case unknown:
            raise _invalid("outcome", f"{unknown} must be answered, proposed or stopped")


def completion(
    history: TaskHistory, task: Task, resolution: str, result: str, findings: Findings, now: datetime
) -> TaskCompleted:
    """Build the message of a completed task, with the spending in `history`."""
    spend = history.spend
    return TaskCompleted(
        task_id=task.task_id,
        resolution=resolution,
        result=result,
        confidence=task.confidence,
        cost_usd=spend.spent_usd,
        tokens=spend.spent_tokens,
        unpriced_calls=spend.unpriced,
        duration_ms=max(0, round((now - task.submitted_at).total_seconds() * 1000)),
        findings=findings,
    )


def _answered(history: TaskHistory, message: TaskWorked, now: datetime) -> TaskUpdate:
    row = transition(history.workflow_state, WorkflowEvent.ANSWERED)
    if row is None:
        return without_effect(history, "an answer")
    resolution, result = "planned" if history.task.kind == "plan" else "answered", _text(message)
    task = with_transition(
        history.task,
        row,
        now,
        result=result,
        resolution=resolution,
        confidence=message.confidence,
        findings=message.findings,
        resumes=_resumes(history),
    )
    reasoning = f"attempt {message.attempt} is {resolution}, {_basis(message)}"
    return TaskUpdate(
        steps=(ReasoningStep("complete", reasoning),),
        decision=f"complete as {resolution}",
        confidence=message.confidence,
        task=task,
        messages=(
            *resumed_messages(history, message),
            completion(history, task, resolution, result, message.findings, now),
        ),
        plans=plans_of(history.task, message, now),
    )


def _proposed(history: TaskHistory, message: TaskWorked, now: datetime) -> TaskUpdate:
    if in_shadow(history.task):
        return _shadowed(history, message, now)
    row = transition(history.workflow_state, WorkflowEvent.PROPOSED)
    if row is None:
        return without_effect(history, "a proposal")
    proposal = _text(message)
    sha256 = message.artifact_sha256 or hashlib.sha256(proposal.encode()).hexdigest()
    task = with_transition(
        history.task,
        row,
        now,
        proposal=proposal,
        artifact_sha256=sha256,
        attempt_id=message.attempt_id,
        attempt_action_id=message.action_id,
        confidence=message.confidence,
        findings=message.findings,
        resumes=_resumes(history),
    )
    proposed = TaskProposed(
        task_id=task.task_id,
        attempt=message.attempt,
        proposal=proposal,
        artifact_sha256=sha256,
        findings=message.findings,
        confidence=message.confidence,
    )
    return TaskUpdate(
        steps=(
            ReasoningStep("propose", f"attempt {message.attempt} is proposed, {_basis(message)}; its outcome decides"),
        ),
        decision=f"propose attempt {message.attempt}",
        confidence=message.confidence,
        task=task,
        messages=(*resumed_messages(history, message), proposed),
    )


def in_shadow(task: Task) -> bool:
    """Whether nothing is proposed or offered for the task; an instruction is followed all the same."""
    return task.shadow and task.override is None


def _shadowed(history: TaskHistory, message: TaskWorked, now: datetime) -> TaskUpdate:
    """Wait for an outcome with the proposal on its attempt only, not shown to anyone."""
    row = transition(history.workflow_state, WorkflowEvent.SHADOWED)
    if row is None:
        return without_effect(history, "a proposal in shadow")
    task = with_transition(
        history.task,
        row,
        now,
        proposal=SHADOW_TEXT,
        attempt_id=message.attempt_id,
        attempt_action_id=message.action_id,
        findings=Findings(downstream=message.findings.downstream),
        resumes=_resumes(history),
    )
    attempt = history.attempts.get(message.attempt)
    learned = (attempt[0].model_copy(update={"shadow": True}),) if attempt else ()
    return TaskUpdate(
        steps=(ReasoningStep("propose", f"attempt {message.attempt} is recorded in shadow, {_basis(message)}"),),
        decision=f"record attempt {message.attempt} in shadow",
        confidence=message.confidence,
        task=task,
        messages=resumed_messages(history, message),
        learned=learned,
    )


def _stopped(history: TaskHistory, message: TaskWorked, now: datetime, *, reassess_at: datetime | None) -> TaskUpdate:
    message = _without_hidden(history.task, message)
    escalation = escalate_stop(history.task, message)
    row = transition(history.workflow_state, WorkflowEvent.STOPPED, guard_for_needs(escalation.needs))
    if row is None:
        return without_effect(history, "a stop")
    task = with_transition(history.task, row, now, escalation=escalation, **_shown(history, message))
    needs = ", ".join(need.kind for need in escalation.needs)
    reasoning = f"attempt {message.attempt} stopped ({escalation.code}), {_basis(message)}; needs {needs}"
    return TaskUpdate(
        steps=(ReasoningStep("escalate", reasoning),),
        decision=f"escalate to {escalation.to}: {escalation.code}",
        confidence=message.confidence,
        task=task,
        messages=(*resumed_messages(history, message), _escalated(task, message)),
        timers=(("reassess", reassess_at),) if reassess_at and row.to == AWAITS_DOCUMENTS else (),
        plans=plans_of(history.task, message, now),
    )


def _without_hidden(task: Task, message: TaskWorked) -> TaskWorked:
    """Return a result without what a task in shadow does not show."""
    if not in_shadow(task):
        return message
    hidden = Findings(downstream=message.findings.downstream)
    return message.model_copy(update={"text": None, "findings": hidden})


def _shown(history: TaskHistory, message: TaskWorked) -> dict[str, Any]:
    """Return the fields of a task that waits with a result that is not offered."""
    findings = with_attempts(_with_plan(message), history.ordered_attempts)
    artifacts = artifacts_of(message) or history.task.artifacts
    return {"proposal": message.text, "confidence": message.confidence, "findings": findings, "artifacts": artifacts}


def _escalated(task: Task, message: TaskWorked) -> TaskEscalated:
    """Return the message about a task that waits with a result that is not offered."""
    assert task.escalation is not None, "the task is escalated"
    return TaskEscalated(
        task_id=task.task_id,
        to=task.escalation.to,
        code=task.escalation.code,
        needs=task.escalation.needs,
        searched_for=message.searched_for,
        confidence=task.confidence,
        findings=task.findings or Findings(),
        artifacts=task.artifacts,
    )


def _reassessed(history: TaskHistory, message: TaskWorked, now: datetime) -> TaskUpdate:
    task, before, after = history.task, history.task.confidence, message.confidence
    row = transition(history.workflow_state, WorkflowEvent.ROSE)
    if row is None or not has_risen(before, after):
        was, now_is = describe_confidence(before), describe_confidence(after)
        reasoning = f"knowledge has changed, confidence was {was} and is {now_is}: it continues to wait"
        return TaskUpdate(steps=(ReasoningStep("assess", reasoning),))
    return TaskUpdate(
        steps=(ReasoningStep("resume", _resume_reason(history, message)),),
        decision=f"resume with attempt {history.next_attempt}",
        confidence=after,
        task=with_attempt(
            task, row, now, history.next_attempt, confidence=after, findings=message.findings, resumes=_resumes(history)
        ),
        delegate="work",
        messages=resumed_messages(history, message),
    )


def _resumes(history: TaskHistory) -> int:
    return history.task.resumes + (history.workflow_state == AWAITS_DOCUMENTS)


def resumed_messages(history: TaskHistory, message: TaskWorked) -> tuple[Message, ...]:
    """Messages that a task resumes, when it had been waiting for documents or an approval."""
    if history.workflow_state == AWAITS_APPROVAL:
        return (TaskResumed(task_id=message.task_id, reason=decided_reason(history)),)
    if history.workflow_state != AWAITS_DOCUMENTS:
        return ()
    sources = tuple(dict.fromkeys(citation.source_path for citation in message.findings.citations))
    return (TaskResumed(task_id=message.task_id, reason=_resume_reason(history, message), sources=sources),)


def decided_reason(history: TaskHistory) -> str:
    """Return the end of the approval that the task waited for, in words."""
    if history.approval is None:
        return "the approval is gone"
    approval = history.approval[0]
    by = f" by {approval.decided_by}" if approval.decided_by else ""
    why = f": {approval.reason}" if approval.reason else ""
    return f"approval {approval.approval_id} ({approval.category}) {approval.decision or 'expired'}{by}{why}"


def _resume_reason(history: TaskHistory, message: TaskWorked) -> str:
    before, after = describe_confidence(history.task.confidence), describe_confidence(message.confidence)
    return f"new knowledge: confidence was {before} and is {after}, resumed automatically {_resumes(history)} times"


def _with_plan(message: TaskWorked) -> Findings:
    """Findings of a stop, with the developer's outline as the next step."""
    if message.text is None or message.findings.next_steps:
        return message.findings
    return message.findings.model_copy(update={"next_steps": (message.text,)})


def _basis(message: TaskWorked) -> str:
    findings = message.findings
    return (
        f"confidence {describe_confidence(message.confidence)}, {quantity(len(findings.citations), 'citation')}, "
        f"{quantity(len(findings.similar_attempts), 'earlier attempt')}"
    )


def _text(message: TaskWorked) -> str:
    if message.text is None:
        raise _invalid("text", f"is missing, the outcome is {message.outcome}")
    return message.text


def _invalid(field: str, problem: str) -> Permanent:
    return Permanent(ErrorCode.INVALID_MESSAGE, (Problem(field=field, problem=problem),))
