"""The developer's work: what becomes of an answer, a proposal, a stop, a reassessment (rows A2, A3)."""

import hashlib
from datetime import datetime
from decimal import Decimal

from counterpoint.manager.attempts import with_tried
from counterpoint.manager.bounds import Bounds
from counterpoint.manager.dossier import Dossier
from counterpoint.manager.escalation import helped_by, of_stop
from counterpoint.manager.knowledge import described, rose
from counterpoint.manager.moves import Move, Said, attempting, late, moved
from counterpoint.manager.workflow import AWAITS_DOCUMENTS, WORKING, Event, transition
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.findings import Findings
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import Task, TaskCompleted, TaskEscalated, TaskProposed, TaskResumed, TaskWorked

SHADOW_TEXT = "Nothing is proposed: incidents of this job are in shadow. Say what fixes it."


def worked(dossier: Dossier, message: TaskWorked, now: datetime, bounds: Bounds, *, newly_known: bool) -> Move:
    """What follows from the developer's work. `newly_known`: documents came in that it may not have seen.

    A task that works takes it as the result of its attempt, one that waits for documents as a reassessment.
    Raises `Permanent` for an outcome without its text, or one that nobody knows.
    """
    if dossier.place not in (WORKING, AWAITS_DOCUMENTS) or message.attempt != dossier.task.attempt:
        return late(dossier, f"work of attempt {message.attempt} ({message.outcome})")
    match message.outcome:
        case "answered":
            return _answered(dossier, message, now)
        case "proposed":
            return _proposed(dossier, message, now)
        case "stopped" if dossier.place == WORKING:
            return _stopped(dossier, message, now, reassess=newly_known and dossier.task.resumes < bounds.max_resumes)
        case "stopped":
            return _reassessed(dossier, message, now)
        case unknown:
            raise _invalid("outcome", f"{unknown} is none of answered, proposed, stopped")


def completed(task: Task, resolution: str, result: str, findings: Findings, now: datetime) -> TaskCompleted:
    """The message of a good end. Offline nothing is spent."""
    return TaskCompleted(
        task_id=task.task_id,
        resolution=resolution,
        result=result,
        confidence=task.confidence,
        cost_usd=Decimal(0),
        tokens=0,
        duration_ms=max(0, round((now - task.submitted_at).total_seconds() * 1000)),
        findings=findings,
    )


def _answered(dossier: Dossier, message: TaskWorked, now: datetime) -> Move:
    row = transition(dossier.place, Event.ANSWERED)
    if row is None:
        return late(dossier, "an answer")
    resolution, result = "planned" if dossier.task.kind == "plan" else "answered", _text(message)
    task = moved(
        dossier.task,
        row,
        now,
        result=result,
        resolution=resolution,
        confidence=message.confidence,
        findings=message.findings,
        resumes=_resumes(dossier),
    )
    reasoning = f"attempt {message.attempt} is {resolution}, {_basis(message)}"
    return Move(
        said=(Said("complete", reasoning),),
        decision=f"complete as {resolution}",
        confidence=message.confidence,
        task=task,
        messages=(*_resumed(dossier, message), completed(task, resolution, result, message.findings, now)),
    )


def _proposed(dossier: Dossier, message: TaskWorked, now: datetime) -> Move:
    if dossier.task.shadow and dossier.task.override is None:
        return _shadowed(dossier, message, now)
    row = transition(dossier.place, Event.PROPOSED)
    if row is None:
        return late(dossier, "a proposal")
    proposal = _text(message)
    sha256 = message.artifact_sha256 or hashlib.sha256(proposal.encode()).hexdigest()
    task = moved(
        dossier.task,
        row,
        now,
        proposal=proposal,
        artifact_sha256=sha256,
        attempt_id=message.attempt_id,
        attempt_action_id=message.action_id,
        confidence=message.confidence,
        findings=message.findings,
        resumes=_resumes(dossier),
    )
    proposed = TaskProposed(
        task_id=task.task_id,
        attempt=message.attempt,
        proposal=proposal,
        artifact_sha256=sha256,
        findings=message.findings,
        confidence=message.confidence,
    )
    return Move(
        said=(Said("propose", f"attempt {message.attempt} is proposed, {_basis(message)}; its outcome decides"),),
        decision=f"propose attempt {message.attempt}",
        confidence=message.confidence,
        task=task,
        messages=(*_resumed(dossier, message), proposed),
    )


def _shadowed(dossier: Dossier, message: TaskWorked, now: datetime) -> Move:
    """Return the wait for an outcome with the proposal on its attempt alone: nobody is shown it."""
    row = transition(dossier.place, Event.SHADOWED)
    if row is None:
        return late(dossier, "a proposal in shadow")
    task = moved(
        dossier.task,
        row,
        now,
        proposal=SHADOW_TEXT,
        attempt_id=message.attempt_id,
        attempt_action_id=message.action_id,
        findings=Findings(downstream=message.findings.downstream),
        resumes=_resumes(dossier),
    )
    made = dossier.attempts.get(message.attempt)
    learned = (made[0].model_copy(update={"shadow": True}),) if made else ()
    return Move(
        said=(Said("propose", f"attempt {message.attempt} is recorded in shadow, {_basis(message)}"),),
        decision=f"record attempt {message.attempt} in shadow",
        confidence=message.confidence,
        task=task,
        messages=_resumed(dossier, message),
        learned=learned,
    )


def _stopped(dossier: Dossier, message: TaskWorked, now: datetime, *, reassess: bool) -> Move:
    escalation = of_stop(dossier.task, message)
    row = transition(dossier.place, Event.STOPPED, helped_by(escalation.needs))
    if row is None:
        return late(dossier, "a stop")
    findings = with_tried(_with_plan(message), dossier.tried)
    task = moved(
        dossier.task,
        row,
        now,
        escalation=escalation,
        proposal=message.text,
        confidence=message.confidence,
        findings=findings,
    )
    escalated = TaskEscalated(
        task_id=task.task_id,
        to=escalation.to,
        code=escalation.code,
        needs=escalation.needs,
        searched_for=escalation.searched_for,
        confidence=message.confidence,
        findings=findings,
    )
    needs = ", ".join(need.kind for need in escalation.needs)
    reasoning = f"attempt {message.attempt} stopped ({escalation.code}), {_basis(message)}; needs {needs}"
    return Move(
        said=(Said("escalate", reasoning),),
        decision=f"escalate to {escalation.to}: {escalation.code}",
        confidence=message.confidence,
        task=task,
        messages=(escalated,),
        reassess=reassess and row.to == AWAITS_DOCUMENTS,
    )


def _reassessed(dossier: Dossier, message: TaskWorked, now: datetime) -> Move:
    task, before, after = dossier.task, dossier.task.confidence, message.confidence
    row = transition(dossier.place, Event.ROSE)
    if row is None or not rose(before, after):
        reasoning = f"knowledge has changed, confidence was {described(before)} and is {described(after)}: it waits on"
        return Move(said=(Said("assess", reasoning),))
    return Move(
        said=(Said("resume", _risen(dossier, message)),),
        decision=f"resume with attempt {dossier.next_attempt}",
        confidence=after,
        task=attempting(
            task, row, now, dossier.next_attempt, confidence=after, findings=message.findings, resumes=_resumes(dossier)
        ),
        delegate="work",
        messages=_resumed(dossier, message),
    )


def _resumes(dossier: Dossier) -> int:
    return dossier.task.resumes + (dossier.place == AWAITS_DOCUMENTS)


def _resumed(dossier: Dossier, message: TaskWorked) -> tuple[Message, ...]:
    """The word that a task goes on by itself, when it had been waiting for documents."""
    if dossier.place != AWAITS_DOCUMENTS:
        return ()
    sources = tuple(dict.fromkeys(citation.source_path for citation in message.findings.citations))
    return (TaskResumed(task_id=message.task_id, reason=_risen(dossier, message), sources=sources),)


def _risen(dossier: Dossier, message: TaskWorked) -> str:
    before, after = described(dossier.task.confidence), described(message.confidence)
    return f"new knowledge: confidence was {before} and is {after}, resumed {_resumes(dossier)} times by itself"


def _with_plan(message: TaskWorked) -> Findings:
    """The findings of a stop; what the developer had outlined until then is the next step."""
    if message.text is None or message.findings.next_steps:
        return message.findings
    return message.findings.model_copy(update={"next_steps": (message.text,)})


def _basis(message: TaskWorked) -> str:
    found = message.findings
    return (
        f"confidence {described(message.confidence)}, {len(found.citations)} citations, "
        f"{len(found.similar_attempts)} earlier attempts"
    )


def _text(message: TaskWorked) -> str:
    if message.text is None:
        raise _invalid("text", f"is missing, the outcome is {message.outcome}")
    return message.text


def _invalid(field: str, problem: str) -> Permanent:
    return Permanent("invalid_message", (Problem(field=field, problem=problem),))
