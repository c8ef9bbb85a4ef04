"""What the developer does with a message: reads, decides by pure functions, returns one commit."""

import asyncio
from dataclasses import replace
from typing import assert_never

from counterpoint.bus import Service
from counterpoint.client import Gateway, Memory, act, decide, put, send
from counterpoint.developer.assessment import Assessment, assess
from counterpoint.developer.downstream import look_up, with_downstream
from counterpoint.developer.evidence import Evidence, look, weigh
from counterpoint.developer.rag.desk import Desk
from counterpoint.developer.rag.graph import finish, load, walk
from counterpoint.developer.relevance import Calibration, calibration
from counterpoint.developer.settings import ANSWER_DEADLINE_S, DeveloperSettings
from counterpoint.developer.used import used_by
from counterpoint.developer.work import Answered, Proposed, Result, Stopped, concluded, work
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.errors import Permanent
from counterpoint.proto.line import Action, ActionKind
from counterpoint.proto.memory import Commit, Write
from counterpoint.proto.tasks import TaskDelegated, TaskWorked

AGENT = "developer"
OFFLINE = Gateway(None)
"""No model and no search of the web."""


def register(service: Service, settings: DeveloperSettings) -> None:
    """Have the developer work on what is delegated to it."""
    gateway, known = settings.gateway(), calibration(settings.calibration_file)

    async def handler(message: TaskDelegated, memory: Memory) -> Commit:
        return await in_one(message, memory, gateway, known, settings.answer_deadline_s)

    service.on(TaskDelegated)(handler)


async def in_one(
    message: TaskDelegated, memory: Memory, gateway: Gateway, known: Calibration, answer_deadline_s: float
) -> Commit:
    """`on_delegated` in one commit where nobody outside can be asked. If memory refuses that, a question is answered
    again step by step, so that the step at fault falls back."""
    if not _in_steps(message) or gateway.model is not None or gateway.searches_web:
        return await on_delegated(message, memory, gateway, known, answer_deadline_s)
    try:
        await memory.step(await on_delegated(message, memory, gateway, known, answer_deadline_s, at_once=True))
        return Commit()
    except Permanent:
        return await on_delegated(message, memory, gateway, known, answer_deadline_s)


async def on_delegated(
    message: TaskDelegated,
    memory: Memory,
    gateway: Gateway = OFFLINE,
    known: Calibration | None = None,
    answer_deadline_s: float = ANSWER_DEADLINE_S,
    *,
    at_once: bool = False,
) -> Commit:
    """Look up what is known, weigh it, and answer, propose or stop. A reassessment that still stops leaves only what
    it came to that by on the line, not the stop.

    A question that nobody has given an override for is answered in steps, each a commit of its own unless `at_once`.
    """
    known = known or calibration()
    if _in_steps(message):
        return await answered(
            message, memory, Desk(message, memory, gateway, known, answer_deadline_s, at_once=at_once)
        )
    evidence = weigh(message, await look(memory, message), known)
    assessment = assess(message, evidence, known)
    result = await _with_downstream(message, memory, work(message, evidence, assessment, known))
    return commit_of(message, memory, evidence, assessment, result)


def _in_steps(message: TaskDelegated) -> bool:
    return message.lane == "answer" and message.override is None


async def answered(message: TaskDelegated, memory: Memory, desk: Desk) -> Commit:
    """A question, to its end: from the last step that was kept, within the time of the desk and the deadline of the
    task. When the time is over no model is asked any more and no other words are tried."""
    run = await desk.begin()
    if desk.at_once:
        run = await walk(run, desk)
    else:
        await asyncio.to_thread(load)
        run = await finish(run, desk)
    assessment, result = concluded(message, desk.evidence, run)
    result = await _with_downstream(message, memory, result)
    action_id, decision_id = desk.last(run)
    if message.purpose == "reassess" and isinstance(result, Stopped):
        ended = _commit([], [], _worked(message, assessment, desk.evidence, result, action_id, None))
    else:
        decided, acted = _ended(message, memory, desk.evidence, assessment, result, action_id, decision_id)
        worked = _worked(message, assessment, desk.evidence, result, acted.action_id, None)
        ended = _commit([acted], [decided], worked)
    return ended.model_copy(
        update={
            "writes": (*desk.held.writes, *ended.writes),
            "messages": (*desk.held.messages, *ended.messages),
        }
    )


async def _with_downstream(message: TaskDelegated, memory: Memory, result: Result) -> Result:
    looked = await look_up(memory, message.task.target)
    return replace(result, findings=with_downstream(result.findings, message.task, looked))


def commit_of(
    message: TaskDelegated, memory: Memory, evidence: Evidence, assessment: Assessment, result: Result
) -> Commit:
    """The result as one commit: the line, the decisions, the attempt if any, and the message to the manager."""
    used = used_by(result, evidence)
    weighed = decide(
        memory,
        AGENT,
        "retrieval_grade" if assessment.grade else "confidence",
        "go on" if assessment.passed else "stop",
        assessment.reasoning,
        session_id=message.session_id,
        confidence=assessment.confidence,
        sources=used,
    )
    searched = act(
        memory,
        AGENT,
        "search",
        "; ".join(evidence.searched_for),
        result=f"{len(evidence.found)} passages, {len(evidence.tried)} earlier attempts",
        after=message.after,
    )
    assessed = act(
        memory,
        AGENT,
        "assess",
        assessment.reasoning,
        after=(searched.action_id,),
        sources=used,
        decision=weighed,
    )
    if message.purpose == "reassess" and isinstance(result, Stopped):
        return _commit(
            [searched, assessed], [weighed], _worked(message, assessment, evidence, result, assessed.action_id, None)
        )
    decided, acted = _ended(message, memory, evidence, assessment, result, assessed.action_id, weighed.decision_id)
    attempt = _attempt(message, memory, evidence, assessment, result) if isinstance(result, Proposed) else None
    worked = _worked(message, assessment, evidence, result, acted.action_id, attempt)
    writes = (put("attempts", attempt.attempt_id, attempt),) if attempt else ()
    return _commit([searched, assessed, acted], [weighed, decided], worked, writes)


def _commit(
    actions: list[Action], decisions: list[DecisionMade], worked: TaskWorked, writes: tuple[Write, ...] = ()
) -> Commit:
    return Commit(
        writes=(*writes, *(put("actions", action.action_id, action) for action in actions)),
        messages=(*(send(decision) for decision in decisions), send(worked)),
    )


def _ended(
    message: TaskDelegated,
    memory: Memory,
    evidence: Evidence,
    assessment: Assessment,
    result: Result,
    after: str,
    parent: str,
) -> tuple[DecisionMade, Action]:
    """The decision and the action that a result is, after the last ones before it."""
    kind, decision = _outcome(result)
    used = used_by(result, evidence)
    decided = decide(
        memory,
        AGENT,
        kind,
        decision,
        result.reasoning,
        session_id=message.session_id,
        confidence=assessment.confidence,
        sources=used,
        parent=parent,
    )
    acted = act(
        memory,
        AGENT,
        kind,
        result.reasoning,
        result=decision,
        after=(after,),
        sources=used,
        decision=decided,
    )
    return decided, acted


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
    instructed = override if override and result.proposal.tried == override.instruction else None
    return Attempt(
        attempt_id=memory.id("attempt"),
        task_id=message.task_id,
        project=message.project,
        attempt=message.attempt,
        title=task.title,
        description=task.description,
        error_message=task.error_message,
        error_signature=evidence.digest,
        systems=task.systems,
        job=task.target.job if task.target else None,
        tried=result.proposal.tried,
        summary=result.proposal.summary,
        by=AGENT,
        override_by=instructed.by if instructed else None,
        reason=instructed.reasoning if instructed else None,
        constraints=override.constraints if override else (),
        confidence=assessment.confidence.score,
        at=memory.now,
    )


def _worked(
    message: TaskDelegated,
    assessment: Assessment,
    evidence: Evidence,
    result: Result,
    action_id: str,
    attempt: Attempt | None,
) -> TaskWorked:
    said = {
        "task_id": message.task_id,
        "attempt": message.attempt,
        "confidence": assessment.confidence,
        "searched_for": evidence.searched_for,
        "findings": result.findings,
        "action_id": action_id,
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
