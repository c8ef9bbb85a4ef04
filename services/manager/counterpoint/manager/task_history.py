"""The history of a task that a decision is based on: its record and all its attempts."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from counterpoint.client import Memory, readable, record
from counterpoint.manager.gateway.ledger import SpendRecord
from counterpoint.manager.workflow import AWAITS_OUTCOME, WORKING, WorkflowState
from counterpoint.proto.approvals import STORE as APPROVALS
from counterpoint.proto.approvals import Approval
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import Source
from counterpoint.proto.errors import Transient
from counterpoint.proto.memory import Get, Item, List, MemoryQuery, QueryResult
from counterpoint.proto.plans import PlanNote, PlanRecord
from counterpoint.proto.tasks import State, Task, WaitingFor

PLANS, PLANNER_MEMORY = "plans", "planner_memory"
PLANNED_KINDS = frozenset({"plan", "develop"})
"""Kinds of tasks that have a plan."""
PLANS_MAX = 100
RETRY_UNKNOWN_S = 0.2
"""Retry delay for a message that arrives before the routing of its task."""


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """A task and its attempts by number, with the versions read.

    `approval`: the approval that the task waits for. `spend`: what a live task has spent, if that was read. `plans`:
    the records of its plan by id, `plan_note`: what the plan came to.
    """

    task: Task
    item: Item
    attempts: dict[int, tuple[Attempt, Item]]
    spend: SpendRecord = field(default_factory=SpendRecord)
    spend_item: Item | None = None
    approval: tuple[Approval, Item] | None = None
    plans: dict[str, tuple[PlanRecord, Item]] = field(default_factory=dict)
    plan_note: tuple[PlanNote, Item] | None = None

    @property
    def workflow_state(self) -> WorkflowState:
        """State of the task in the workflow."""
        return workflow_state_of(self.task)

    @property
    def ordered_attempts(self) -> tuple[Attempt, ...]:
        """The attempts, oldest first."""
        return tuple(attempt for attempt, _ in self.attempts.values())

    @property
    def next_attempt(self) -> int:
        """Number of the next attempt, from 1. A stop is not an attempt; one in work or proposed has its number."""
        taken = self.workflow_state in (WORKING, AWAITS_OUTCOME)
        return max([0, *self.attempts, *([self.task.attempt or 0] if taken else [])]) + 1

    @property
    def sources(self) -> tuple[Source, ...]:
        """Sources of a decision: the records read."""
        items = (self.item, *(item for _, item in self.attempts.values()))
        return tuple(Source(store=item.store, id=item.id, version=item.version) for item in items)


def workflow_state_of(task: Task) -> WorkflowState:
    """State of a task in the workflow."""
    return WorkflowState(cast(State, task.state), cast(WaitingFor | None, task.waiting_for))


def task_history(task: Item, attempts: Sequence[Item]) -> TaskHistory:
    """Build the history from records."""
    known = sorted(((one, item) for item, one in readable(attempts, Attempt)), key=lambda pair: pair[0].attempt)
    return TaskHistory(record(task, Task), task, {attempt.attempt: (attempt, item) for attempt, item in known})


async def read_task_history(memory: Memory, task_id: str) -> TaskHistory:
    """Read the history of a task. Raises `Transient` when the task has no record yet."""
    return (await read_beside(memory, task_id))[0]


async def read_beside(
    memory: Memory, task_id: str, *beside: MemoryQuery
) -> tuple[TaskHistory, tuple[QueryResult, ...]]:
    """Read the history of a task, and the answers to other queries in the same request. Raises like
    `read_task_history`."""
    attempts = List(store="attempts", task_id=task_id, ascending=True, limit=1000)
    tasks, first, *answers = await memory.query(Get(store="tasks", id=task_id), attempts, *beside)
    if not tasks.items:
        raise Transient(f"task {task_id} has no record yet", retry_after_s=RETRY_UNKNOWN_S)
    known = [item async for page in memory.pages(attempts, first) for item in page.items]
    history = task_history(tasks.items[0], known)
    history = await _with_plans(memory, history)
    pending = history.task.approval
    item = await memory.get(APPROVALS, pending.approval_id) if pending else None
    if item is not None:
        history = replace(history, approval=(record(item, Approval), item))
    return history, tuple(answers)


async def _with_plans(memory: Memory, history: TaskHistory) -> TaskHistory:
    """Add the records of the plan of a live task, and what that of an ended one came to."""
    task_id = history.task.task_id
    if history.task.kind not in PLANNED_KINDS:
        return history
    if not history.workflow_state.ended:
        (found,) = await memory.query(List(store=PLANS, task_id=task_id, limit=PLANS_MAX))
        return replace(history, plans={item.id: (plan, item) for item, plan in readable(found.items, PlanRecord)})
    item = await memory.get(PLANNER_MEMORY, task_id)
    return replace(history, plan_note=(record(item, PlanNote), item)) if item else history


async def with_spend(memory: Memory, history: TaskHistory) -> TaskHistory:
    """Add the spending of a live task, which is complete without it when no model was called."""
    if history.workflow_state.ended:
        return history
    (answer,) = await memory.query(spend_query(history.task.task_id))
    return with_spend_of(history, answer)


def spend_query(task_id: str) -> Get:
    """Return the query for the spending of a task."""
    return Get(store="spend", id=task_id)


def with_spend_of(history: TaskHistory, answer: QueryResult) -> TaskHistory:
    """Add the spending by the answer to `spend_query`."""
    item = next(iter(answer.items), None)
    return replace(history, spend=record(item, SpendRecord), spend_item=item) if item else history
