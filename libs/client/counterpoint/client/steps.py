"""Parts of a commit: records put or deleted, messages sent, actions and decisions of an agent."""

from collections.abc import Sequence
from datetime import datetime

from counterpoint.client.memory import Memory
from counterpoint.client.readable import RecordVersion
from counterpoint.proto.decisions import Confidence, DecisionMade, Source
from counterpoint.proto.line import Action, ActionKind
from counterpoint.proto.memory import Item, Outgoing, Write
from counterpoint.proto.messages import Message, Shape


def put(store: str, record_id: str, body: Shape, existing: RecordVersion | None = None) -> Write:
    """Return the write of a new record, or of the next version of an `existing` one."""
    dumped = body.model_dump(mode="json", exclude_none=True)
    expect = existing.version if existing else 0
    return Write(store=store, id=record_id, body=dumped, expect=expect)


def delete(existing: Item) -> Write:
    """Return the deletion of a record at the version read."""
    return Write(store=existing.store, id=existing.id, body=None, expect=existing.version)


def send(
    message: Message, *, task_id: str | None = None, due_at: datetime | None = None, timer: str | None = None
) -> Outgoing:
    """Return a message to publish after the commit, or at `due_at` unless `timer` is cancelled before.

    `task_id` defaults to that of the message.
    """
    task = task_id or getattr(message, "task_id", None)
    data = message.model_dump(mode="json", exclude_none=True)
    return Outgoing(type=message.TYPE, data=data, task_id=task, due_at=due_at, timer=timer)


def decide(
    memory: Memory,
    agent: str,
    decision_type: str,
    decision: str,
    reasoning: str,
    *,
    task_id: str | None = None,
    session_id: str | None = None,
    confidence: Confidence | None = None,
    sources: Sequence[Source] = (),
    parent: str | None = None,
    step: str | None = None,
) -> DecisionMade:
    """Return a decision of `agent` in this step.

    Its id is derived from the inbound message, the agent, the type, and `step`, which distinguishes several of one
    type.
    """
    return DecisionMade(
        decision_id=memory.id("decision", agent, decision_type, *((step,) if step else ())),
        task_id=task_id or memory.task_id,
        session_id=session_id,
        project=memory.project,
        agent=agent,
        decision_type=decision_type,
        decision=decision,
        reasoning=reasoning,
        confidence=confidence,
        sources=tuple(sources),
        parent_decision_id=parent,
        made_at=memory.now,
    )


def act(
    memory: Memory,
    agent: str,
    kind: ActionKind,
    reasoning: str,
    *,
    task_id: str | None = None,
    result: str | None = None,
    after: Sequence[str] = (),
    coordinates_with: Sequence[str] = (),
    sources: Sequence[Source] = (),
    decision: DecisionMade | None = None,
    step: str | None = None,
) -> Action:
    """Return an action of `agent` on the line of the task.

    Its id is derived from the inbound message, the agent, the kind, and `step`, which distinguishes several of one
    kind.
    """
    task = task_id or memory.task_id
    if task is None:
        raise ValueError("an action belongs to a task")
    return Action(
        action_id=memory.id("action", agent, kind, *((step,) if step else ())),
        task_id=task,
        agent=agent,
        kind=kind,
        reasoning=reasoning,
        result=result,
        after=tuple(after),
        coordinates_with=tuple(coordinates_with),
        sources=tuple(sources),
        decision_id=decision.decision_id if decision else None,
        at=memory.now,
    )
