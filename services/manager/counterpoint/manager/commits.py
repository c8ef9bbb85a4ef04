"""From a move to the commit that makes it: records, messages, timers, the line and the decision, all at once."""

from collections.abc import Sequence

from counterpoint.manager.attempts import outcomes
from counterpoint.manager.bounds import Bounds
from counterpoint.manager.dossier import Dossier
from counterpoint.manager.moves import Move
from counterpoint.manager.routing import request_of
from counterpoint.manager.timers import needed, reassessment, running, set_timer
from counterpoint.proto.line import Action
from counterpoint.proto.memory import Commit, Outgoing, Write
from counterpoint.proto.tasks import Task, TaskDelegated
from counterpoint.recall import Memory, act, decide, put, send

AGENT = "manager"


def commit(
    memory: Memory,
    bounds: Bounds,
    move: Move,
    *,
    task_id: str,
    after: Sequence[str | None],
    dossier: Dossier | None = None,
    writes: Sequence[Write] = (),
) -> Commit:
    """The commit of a move on the task of `dossier`, or on a new one. `after`: the actions that led to it."""
    writes, messages, cancelled = list(writes), list[Outgoing](), tuple[str, ...]()
    task = move.task or (dossier.task if dossier else None)
    head = tuple(dict.fromkeys(action_id for action_id in after if action_id))
    actions: list[Action] = []
    for said in move.said:
        actions.append(act(memory, AGENT, said.kind, said.reasoning, task_id=task_id, after=head))
        head = (actions[-1].action_id,)
    if move.decision:
        decision = decide(
            memory,
            AGENT,
            actions[-1].kind,
            move.decision,
            actions[-1].reasoning,
            task_id=task_id,
            session_id=task.session_id if task else None,
            confidence=move.confidence,
            sources=dossier.sources if dossier else (),
        )
        actions[-1] = actions[-1].model_copy(update={"decision_id": decision.decision_id})
        messages.append(send(decision))
    writes += [put("actions", action.action_id, action) for action in actions]
    for learned in move.learned:
        seen = dossier.attempts.get(learned.attempt) if dossier else None
        writes.append(put("attempts", learned.attempt_id, learned, seen=seen[1] if seen else None))
    if move.task:
        record = _stored(move.task, move, dossier, head[0])
        writes.append(put("tasks", task_id, record, seen=dossier.item if dossier else None))
        messages += [send(message) for message in move.messages]
        if move.delegate:
            messages.append(send(_delegated(record, move.delegate, head)))
        cancelled = running(dossier.task) if dossier else ()
        messages += needed(record, memory.now, bounds)
    if move.quiet_at:
        messages.append(set_timer(task_id, "quiet", move.quiet_at))
    if move.reassess:
        messages.append(reassessment(task_id, memory.now, bounds))
    return Commit(writes=tuple(writes), messages=tuple(messages), cancel_timers=cancelled)


def _stored(task: Task, move: Move, dossier: Dossier | None, head: str) -> Task:
    tried = {attempt.attempt: attempt for attempt in dossier.tried} if dossier else {}
    tried |= {learned.attempt: learned for learned in move.learned}
    known = outcomes(tried[number] for number in sorted(tried))
    return task.model_copy(update={"version": None, "last_action_id": head, "outcomes": known})


def _delegated(task: Task, purpose: str, head: tuple[str, ...]) -> TaskDelegated:
    return TaskDelegated(
        task_id=task.task_id,
        project=task.project,
        session_id=task.session_id or task.task_id,
        attempt=task.attempt or 1,
        task=request_of(task),
        lane=task.lane or "investigate",
        override=task.override,
        purpose=purpose,
        after=head,
    )
