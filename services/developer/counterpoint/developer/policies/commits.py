"""Commits of the developer: actions on the line, decisions, an attempt and the message to the manager."""

from typing import assert_never

from counterpoint.client import Memory, act, decide, put, send
from counterpoint.developer.policies.proposals import is_agent_override
from counterpoint.developer.policies.results import AnswerResult, Conclusion, ProposalResult, Result, StopResult
from counterpoint.developer.policies.sources import sources_of
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade, Source
from counterpoint.proto.line import Action, ActionKind
from counterpoint.proto.memory import Commit
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.tasks import TaskDelegated, TaskWorked

AGENT = "developer"


def commit_of(message: TaskDelegated, memory: Memory, conclusion: Conclusion) -> Commit:
    """Return the commit of a task decided in one pass: the search, the assessment and the result."""
    steps, after, parent = opening_commit(message, memory, conclusion)
    return join_commits(steps, closing_commit(message, memory, conclusion, after, parent))


def opening_commit(message: TaskDelegated, memory: Memory, conclusion: Conclusion) -> tuple[Commit, str, str]:
    """Return the commit of the search and the assessment alone, and the ids of its last action and decision."""
    evidence, assessment = conclusion.evidence, conclusion.assessment
    sources = sources_of(conclusion.result, evidence)
    decision = decide(
        memory,
        AGENT,
        "retrieval_grade" if assessment.grade else "confidence",
        "go on" if assessment.passed else "stop",
        assessment.reasoning,
        session_id=message.session_id,
        confidence=assessment.confidence,
        sources=sources,
    )
    search = act(
        memory,
        AGENT,
        "search",
        "; ".join(evidence.searched_for),
        result=f"{len(evidence.found)} passages, {len(evidence.attempts)} earlier attempts",
        after=message.after,
    )
    assess = act(
        memory,
        AGENT,
        "assess",
        assessment.reasoning,
        after=(search.action_id,),
        sources=sources,
        decision=decision,
    )
    steps = Commit(
        writes=tuple(put("actions", each.action_id, each) for each in (search, assess)), messages=(send(decision),)
    )
    return steps, assess.action_id, decision.decision_id


def closing_commit(message: TaskDelegated, memory: Memory, conclusion: Conclusion, after: str, parent: str) -> Commit:
    """Return the commit of the result alone, following the action `after` and the decision `parent`.

    A reassessment that stops again has only the message to the manager.
    """
    if message.purpose == "reassess" and isinstance(conclusion.result, StopResult):
        return Commit(messages=(send(_worked(message, conclusion, after, None)),))
    decision, action = _decided(message, memory, conclusion, after, parent)
    attempt = _attempt(message, memory, conclusion)
    writes = [put("attempts", attempt.attempt_id, attempt)] if attempt else []
    worked = _worked(message, conclusion, action.action_id, attempt)
    return Commit(writes=(*writes, put("actions", action.action_id, action)), messages=(send(decision), send(worked)))


def join_commits(first: Commit, second: Commit) -> Commit:
    """Return one commit with the effects of both, in their order."""
    return second.model_copy(
        update={"writes": (*first.writes, *second.writes), "messages": (*first.messages, *second.messages)}
    )


def _decided(
    message: TaskDelegated, memory: Memory, conclusion: Conclusion, after: str, parent: str
) -> tuple[DecisionMade, Action]:
    result = conclusion.result
    kind, text = kind_and_text(conclusion.result)
    sources = sources_of(result, conclusion.evidence)
    decision = decide(
        memory,
        AGENT,
        kind,
        text,
        result.reasoning,
        session_id=message.session_id,
        confidence=conclusion.assessment.confidence,
        sources=sources,
        parent=parent,
    ).model_copy(update={"model": conclusion.model})
    action = act(memory, AGENT, kind, result.reasoning, result=text, after=(after,), sources=sources, decision=decision)
    return decision, action


def kind_and_text(result: Result) -> tuple[ActionKind, str]:
    """Return the kind of action that a result is, and its text on the line."""
    match result:
        case AnswerResult(text=text):
            return "answer", text
        case ProposalResult(proposal=proposal):
            return "propose", proposal.tried
        case StopResult(code=code):
            return "escalate", code
        case _:
            assert_never(result)


def _attempt(message: TaskDelegated, memory: Memory, conclusion: Conclusion) -> Attempt | None:
    """Return the attempt of a proposal; None for other results."""
    if not isinstance(conclusion.result, ProposalResult):
        return None
    task, override, proposal = message.task, message.override, conclusion.result.proposal
    instructed = override if override and proposal.tried == override.instruction else None
    return Attempt(
        attempt_id=memory.id("attempt"),
        task_id=message.task_id,
        project=message.project,
        attempt=message.attempt,
        title=task.title,
        description=task.description,
        error_message=task.error_message,
        error_signature=conclusion.evidence.digest,
        systems=task.systems,
        job=task.target.job if task.target else None,
        tried=proposal.tried,
        summary=proposal.summary,
        by=AGENT,
        override_by=instructed.by if instructed else None,
        reason=instructed.reasoning if instructed else None,
        constraints=override.constraints if override else (),
        sources=_sources_of_instruction(instructed),
        confidence=conclusion.assessment.confidence.score,
        at=memory.now,
    )


def _sources_of_instruction(instructed: OverrideGiven | None) -> tuple[Source, ...]:
    """Return the action of an override as the only source of an attempt at its instruction, whatever else its task
    rests on. An agent's override may repeat what the task quoted, so it names no source."""
    if instructed is None or instructed.action_id is None or is_agent_override(instructed):
        return ()
    return (Source(store="actions", id=instructed.action_id, version=1),)


def _worked(message: TaskDelegated, conclusion: Conclusion, action_id: str, attempt: Attempt | None) -> TaskWorked:
    result = conclusion.result
    fields = {
        "task_id": message.task_id,
        "attempt": message.attempt,
        "confidence": conclusion.assessment.confidence,
        "searched_for": conclusion.evidence.searched_for,
        "findings": result.findings,
        "action_id": action_id,
    }
    match result:
        case AnswerResult(text=text):
            return TaskWorked(**fields, outcome="answered", text=text)
        case ProposalResult(proposal=proposal):
            return TaskWorked(
                **fields,
                outcome="proposed",
                text=proposal.text,
                artifact_sha256=proposal.sha256,
                attempt_id=attempt.attempt_id if attempt else None,
            )
        case StopResult(code=code, needs=needs, text=text):
            return TaskWorked(**fields, outcome="stopped", code=code, needs=needs, text=text)
        case _:
            assert_never(result)
