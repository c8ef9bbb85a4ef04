"""Commits of the developer: actions on the line, decisions, an attempt and the message to the manager."""

from typing import assert_never

from counterpoint.client import Memory, act, decide, put, send
from counterpoint.developer.policies.proposals import is_agent_override
from counterpoint.developer.policies.results import AnswerResult, Conclusion, ProposalResult, Result, StopResult
from counterpoint.developer.policies.review import Review, review, with_caveats
from counterpoint.developer.policies.sources import sources_of
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade, Source
from counterpoint.proto.findings import Objection
from counterpoint.proto.line import Action, ActionKind
from counterpoint.proto.memory import Commit, Write
from counterpoint.proto.messages import Id, Shape, Time
from counterpoint.proto.overrides import OverrideGiven
from counterpoint.proto.tasks import TaskDelegated, TaskWorked
from counterpoint.proto.titles import title_of
from counterpoint.proto.words import quantity

AGENT = "developer"
JUDGE = "judge"


class ReviewNote(Shape):
    """A record of `judge_memory`: the objections to a result."""

    task_id: Id
    attempt: int
    text: str
    rules: tuple[str, ...]
    sent_back: bool
    at: Time


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
        result=f"{quantity(len(evidence.found), 'passage')}, {quantity(len(evidence.attempts), 'earlier attempt')}",
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

    A reassessment that stops again has only the message to the manager. An answer or a proposal is reviewed; one that
    is sent back is no attempt.
    """
    if message.purpose == "reassess" and isinstance(conclusion.result, StopResult):
        return Commit(messages=(send(_worked(message, conclusion, after)),))
    judged = review(message, conclusion)
    conclusion = with_caveats(conclusion, judged) if judged else conclusion
    decision, action = _decided(message, memory, conclusion, after, parent)
    made = Commit(writes=(put("actions", action.action_id, action),), messages=(send(decision),))
    last = action.action_id
    if judged:
        reviewed, last = _reviewed(message, memory, conclusion, judged, decision, action)
        made = join_commits(made, reviewed)
    if judged and judged.sent_back:
        worked = _worked(message, conclusion, last, objections=judged.objections)
        return join_commits(made, Commit(messages=(send(worked),)))
    attempt = _attempt(message, memory, conclusion)
    writes = (put("attempts", attempt.attempt_id, attempt),) if attempt else ()
    worked = _worked(message, conclusion, last, attempt)
    return join_commits(Commit(writes=writes), join_commits(made, Commit(messages=(send(worked),))))


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
    beside = (conclusion.beside,) if conclusion.beside else ()
    action = act(
        memory,
        AGENT,
        kind,
        result.reasoning,
        result=text,
        after=(after,),
        coordinates_with=beside,
        sources=sources,
        decision=decision,
    )
    return decision, action


def _reviewed(
    message: TaskDelegated,
    memory: Memory,
    conclusion: Conclusion,
    judged: Review,
    result: DecisionMade,
    action: Action,
) -> tuple[Commit, str]:
    """Return the commit of the judge's decision, and the id of its action. Objections go to its memory."""
    verdict = "send back" if judged.sent_back else "pass with objections" if judged.objections else "pass"
    sources = sources_of(conclusion.result, conclusion.evidence)
    decision = decide(
        memory,
        JUDGE,
        "review",
        verdict,
        judged.reasoning,
        session_id=message.session_id,
        sources=sources,
        parent=result.decision_id,
    ).model_copy(update={"model": judged.by_model.model if judged.by_model else None})
    step = act(
        memory,
        JUDGE,
        "review",
        judged.reasoning,
        result=verdict,
        after=(action.action_id,),
        sources=sources,
        decision=decision,
    )
    writes: tuple[Write, ...] = (put("actions", step.action_id, step),)
    if judged.objections:
        task = message.task
        job = task.target.job.name if task.target and task.target.job else None
        title = title_of(task.description, task.title, task.error_message, job)
        note = ReviewNote(
            task_id=message.task_id,
            attempt=message.attempt,
            text=f"{title}: {verdict}: {judged.reasoning}",
            rules=tuple(dict.fromkeys(each.rule for each in judged.objections)),
            sent_back=judged.sent_back,
            at=memory.now,
        )
        writes += (put("judge_memory", memory.id("review"), note),)
    return Commit(writes=writes, messages=(send(decision),)), step.action_id


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


def _worked(
    message: TaskDelegated,
    conclusion: Conclusion,
    action_id: str,
    attempt: Attempt | None = None,
    objections: tuple[Objection, ...] = (),
) -> TaskWorked:
    result = conclusion.result
    fields = {
        "task_id": message.task_id,
        "attempt": message.attempt,
        "confidence": conclusion.assessment.confidence,
        "searched_for": conclusion.evidence.searched_for,
        "findings": result.findings,
        "action_id": action_id,
        "objections": objections,
        "wanted_search": conclusion.wanted_search,
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
                alternative=conclusion.alternative,
            )
        case StopResult(code=code, needs=needs, text=text, plans=plans):
            return TaskWorked(**fields, outcome="stopped", code=code, needs=needs, text=text, plans=plans)
        case _:
            assert_never(result)
