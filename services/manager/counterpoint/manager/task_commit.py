"""The commit of a task update: records, messages, timers, actions and the decision."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from counterpoint.client import Memory, act, decide, put, send
from counterpoint.guard.policy import ActRule
from counterpoint.manager.attempts import UNKNOWN, outcomes_by_number
from counterpoint.manager.plans import note_of
from counterpoint.manager.routing import request_of
from counterpoint.manager.task_history import PLANNER_MEMORY, PLANS, TaskHistory
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.task_update import TaskUpdate
from counterpoint.manager.timers import needed_timers, running_timers, set_timer, tool_reminder
from counterpoint.proto.approvals import STORE as APPROVALS
from counterpoint.proto.approvals import Approval
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import DecisionMade
from counterpoint.proto.line import Action
from counterpoint.proto.memory import Commit, Outgoing, Write
from counterpoint.proto.tasks import Task, TaskDelegated

AGENT = "manager"


def task_commit(
    memory: Memory,
    limits: TaskLimits,
    update: TaskUpdate,
    *,
    task_id: str,
    after: Sequence[str | None],
    history: TaskHistory | None = None,
    writes: Sequence[Write],
    web: ActRule,
) -> Commit:
    """Build the commit of an update of the task of `history`, or of a new task.

    `after`: ids of preceding actions. `web`: whether the developer may search the web.
    """
    writes, messages, cancelled = list(writes), list[Outgoing](), tuple[str, ...]()
    task = update.task or (history.task if history else None)
    head = tuple(dict.fromkeys(action_id for action_id in after if action_id))
    actions: list[Action] = []
    for decision, noted in _warnings(memory, update, task_id, head):
        messages.append(send(decision))
        actions.append(noted)
        head = (noted.action_id,)
    for step in update.steps:
        actions.append(act(memory, AGENT, step.kind, step.reasoning, task_id=task_id, after=head))
        head = (actions[-1].action_id,)
    if update.decision:
        decision = decide(
            memory,
            AGENT,
            actions[-1].kind,
            update.decision,
            actions[-1].reasoning,
            task_id=task_id,
            session_id=task.session_id if task else None,
            confidence=update.confidence,
            sources=history.sources if history else (),
        )
        actions[-1] = actions[-1].model_copy(update={"decision_id": decision.decision_id})
        messages.append(send(decision))
    writes += [put("actions", action.action_id, action) for action in actions]
    approvals = _approvals(update, history)
    if never_offered := _never_offered(update, history, approvals):
        update = replace(update, learned=(*update.learned, never_offered))
    for learned in update.learned:
        known = history.attempts.get(learned.attempt) if history else None
        writes.append(put("attempts", learned.attempt_id, learned, existing=known[1] if known else None))
    writes += _approval_writes(approvals, history)
    writes += _plan_writes(update, history, memory.now)
    messages += [send(message) for message in update.messages]
    if update.task:
        record = _stored(update.task, update, history, head[0])
        writes.append(put("tasks", task_id, record, existing=history.item if history else None))
        if update.delegate:
            messages.append(send(_delegated(record, update.delegate, head, web)))
        cancelled = running_timers(history.task) if history else ()
        messages += needed_timers(record, memory.now, limits)
    messages += [set_timer(task_id, timer, due_at) for timer, due_at in update.timers]
    messages += [tool_reminder(task_id, *update.reminder)] if update.reminder else []
    return Commit(writes=tuple(writes), messages=tuple(messages), cancel_timers=cancelled)


def _warnings(
    memory: Memory, update: TaskUpdate, task_id: str, head: tuple[str, ...]
) -> Iterator[tuple[DecisionMade, Action]]:
    """Yield the decision and the action of each warning of a soft limit, one after the other."""
    for number, warning in enumerate(update.warnings):
        step = f"warning-{number}"
        decision = decide(memory, AGENT, "budget", "warn of a soft limit", warning, task_id=task_id, step=step)
        noted = act(memory, AGENT, "assess", warning, task_id=task_id, after=head, decision=decision, step=step)
        yield decision, noted
        head = (noted.action_id,)


def _approvals(update: TaskUpdate, history: TaskHistory | None) -> dict[str, Approval]:
    """Return the approvals after an update. The one that the task waited for is abandoned if the task goes on without
    it."""
    known = history.approval if history else None
    approvals = {each.approval_id: each for each in update.approvals}
    if known and update.task and known[0].approval_id not in approvals:
        approvals[known[0].approval_id] = known[0].abandoned(f"the task went on: {update.decision or 'changed'}")
    return approvals


def _approval_writes(approvals: Mapping[str, Approval], history: TaskHistory | None) -> list[Write]:
    known = history.approval if history else None
    items = {known[0].approval_id: known} if known else {}
    return [
        put(APPROVALS, approval_id, approval, existing=items[approval_id][1] if approval_id in items else None)
        for approval_id, approval in approvals.items()
        if approval_id not in items or approval != items[approval_id][0]
    ]


def _plan_writes(update: TaskUpdate, history: TaskHistory | None, now: datetime) -> list[Write]:
    """Return the records of the plan of a task, and what it came to if the task ends."""
    known = history.plans if history else {}
    writes = [
        put(PLANS, plan.plan_id, plan, existing=known[plan.plan_id][1] if plan.plan_id in known else None)
        for plan in update.plans
    ]
    plans = {plan_id: plan for plan_id, (plan, _) in known.items()} | {plan.plan_id: plan for plan in update.plans}
    note, task = update.plan_note, update.task
    if task and task.ended_at and task.task_id in plans and history and not history.workflow_state.ended:
        note = note_of(task, plans[task.task_id], now)
    if note:
        existing = history.plan_note[1] if history and history.plan_note else None
        writes.append(put(PLANNER_MEMORY, note.task_id, note, existing=existing))
    return writes


def _never_offered(
    update: TaskUpdate, history: TaskHistory | None, approvals: Mapping[str, Approval]
) -> Attempt | None:
    """Return the attempt at a held proposal as one that was not shown, if it will not be offered: it can have caused no
    success."""
    if history is None or history.approval is None or history.approval[0].category != "proposal":
        return None
    ended = approvals.get(history.approval[0].approval_id)
    attempt = history.attempts.get(history.task.attempt or 0)
    if ended is None or ended.state == "applied" or attempt is None or attempt[0].outcome != UNKNOWN:
        return None
    if any(each.attempt == attempt[0].attempt for each in update.learned):
        return None
    return attempt[0].model_copy(update={"shadow": True})


def _stored(task: Task, update: TaskUpdate, history: TaskHistory | None, head: str) -> Task:
    attempts = {attempt.attempt: attempt for attempt in history.ordered_attempts} if history else {}
    attempts |= {learned.attempt: learned for learned in update.learned}
    outcomes = outcomes_by_number(attempts[number] for number in sorted(attempts))
    return task.model_copy(update={"version": None, "last_action_id": head, "outcomes": outcomes})


def _delegated(task: Task, purpose: str, head: tuple[str, ...], web: ActRule) -> TaskDelegated:
    return TaskDelegated(
        task_id=task.task_id,
        project=task.project,
        session_id=task.session_id or task.task_id,
        attempt=task.attempt or 1,
        task=request_of(task),
        lane=task.lane or "investigate",
        override=task.override,
        constraints=task.constraints,
        objections=task.objections,
        purpose=purpose,
        web=web,
        permitted_search=task.permitted_search,
        after=head,
    )
