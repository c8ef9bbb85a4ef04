"""What the developer does with a message: reads, decides by pure functions, returns one commit."""

from typing import assert_never

from counterpoint.bus import Service
from counterpoint.developer.evidence import Evidence, look, weigh
from counterpoint.developer.relevance import calibration
from counterpoint.developer.work import Answered, Assessment, Proposed, Result, Stopped, assess, work
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.line import Action, ActionKind
from counterpoint.proto.memory import Commit, Write
from counterpoint.proto.tasks import TaskDelegated, TaskWorked
from counterpoint.recall import Memory, act, decide, put, send

AGENT = "developer"


def register(service: Service) -> None:
    """Have the developer work on what is delegated to it."""
    service.on(TaskDelegated)(on_delegated)


async def on_delegated(message: TaskDelegated, memory: Memory) -> Commit:
    """Look up what is known, weigh it, and answer, propose or stop. A reassessment that still stops leaves only its
    assessment on the line."""
    known = calibration()
    evidence = weigh(message, await look(memory, message), known)
    assessment = assess(message, evidence, known)
    result = work(message, evidence, assessment, known)
    return commit_of(message, memory, evidence, assessment, result)


def commit_of(
    message: TaskDelegated, memory: Memory, evidence: Evidence, assessment: Assessment, result: Result
) -> Commit:
    """The result as one commit: the line, the decisions, the attempt if any, and the message to the manager."""
    weighed = decide(
        memory,
        AGENT,
        "retrieval_grade" if assessment.grade else "confidence",
        "go on" if assessment.passed else "stop",
        assessment.reasoning,
        session_id=message.session_id,
        confidence=assessment.confidence,
        sources=evidence.basis,
    )
    searched = act(
        memory,
        AGENT,
        "search",
        "; ".join(evidence.searched_for),
        result=f"{len(evidence.found)} passages, {len(evidence.tried)} earlier attempts",
        after=message.after,
        sources=evidence.basis,
    )
    assessed = act(
        memory,
        AGENT,
        "assess",
        assessment.reasoning,
        after=(searched.action_id,),
        sources=evidence.basis,
        decision=weighed,
    )
    if message.purpose == "reassess" and isinstance(result, Stopped):
        return _commit([searched, assessed], [weighed], _worked(message, assessment, evidence, result, assessed, None))
    kind, decision = _outcome(result)
    decided = decide(
        memory,
        AGENT,
        kind,
        decision,
        result.reasoning,
        session_id=message.session_id,
        confidence=assessment.confidence,
        sources=evidence.basis,
        parent=weighed.decision_id,
    )
    acted = act(
        memory,
        AGENT,
        kind,
        result.reasoning,
        result=decision,
        after=(assessed.action_id,),
        sources=evidence.basis,
        decision=decided,
    )
    attempt = _attempt(message, memory, evidence, assessment, result) if isinstance(result, Proposed) else None
    worked = _worked(message, assessment, evidence, result, acted, attempt)
    writes = (put("attempts", attempt.attempt_id, attempt),) if attempt else ()
    return _commit([searched, assessed, acted], [weighed, decided], worked, writes)


def _commit(
    actions: list[Action], decisions: list[DecisionMade], worked: TaskWorked, writes: tuple[Write, ...] = ()
) -> Commit:
    return Commit(
        writes=(*writes, *(put("actions", action.action_id, action) for action in actions)),
        messages=(*(send(decision) for decision in decisions), send(worked)),
    )


def _outcome(result: Result) -> tuple[ActionKind, str]:
    match result:
        case Answered():
            return "answer", result.text
        case Proposed():
            return "propose", result.proposal.tried
        case Stopped():
            return "escalate", result.code
        case _:
            assert_never(result)


def _attempt(
    message: TaskDelegated, memory: Memory, evidence: Evidence, assessment: Assessment, result: Proposed
) -> Attempt:
    task, override = message.task, message.override
    return Attempt(
        attempt_id=memory.id("attempt"),
        task_id=message.task_id,
        project=message.project,
        attempt=message.attempt,
        description=task.description,
        error_message=task.error_message,
        error_signature=evidence.digest,
        systems=task.systems,
        job=task.target.job if task.target else None,
        tried=result.proposal.tried,
        by=AGENT,
        override_by=override.by if override and result.proposal.tried == override.instruction else None,
        confidence=assessment.confidence.score,
        at=memory.now,
    )


def _worked(
    message: TaskDelegated,
    assessment: Assessment,
    evidence: Evidence,
    result: Result,
    last: Action,
    attempt: Attempt | None,
) -> TaskWorked:
    said = {
        "task_id": message.task_id,
        "attempt": message.attempt,
        "confidence": assessment.confidence,
        "searched_for": evidence.searched_for,
        "findings": result.findings,
        "action_id": last.action_id,
    }
    match result:
        case Answered(text=text):
            return TaskWorked(**said, outcome="answered", text=text)
        case Proposed(proposal=proposal):
            return TaskWorked(
                **said,
                outcome="proposed",
                text=proposal.text,
                artifact_sha256=proposal.sha256,
                attempt_id=attempt.attempt_id if attempt else None,
            )
        case Stopped(code=code, needs=needs, text=text):
            return TaskWorked(**said, outcome="stopped", code=code, needs=needs, text=text)
        case _:
            assert_never(result)
