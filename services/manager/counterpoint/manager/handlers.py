"""Handlers of the manager: read the task history, decide, commit."""

from dataclasses import replace
from datetime import datetime

from counterpoint.bus import Service
from counterpoint.client import Gateway, Memory, put, records, send
from counterpoint.guard.policy import ApprovalPolicy, policy
from counterpoint.manager import developer_results, interventions, outcomes
from counterpoint.manager.approval_handlers import ApprovalDesk, with_warnings
from counterpoint.manager.approvals import is_current
from counterpoint.manager.declared_links import changes_card
from counterpoint.manager.knowledge import INGESTED, ends_ingest, ingested_since
from counterpoint.manager.plans import remember_report
from counterpoint.manager.routing import first_attempt
from counterpoint.manager.session_summary import on_summarize
from counterpoint.manager.sessions import session_id_of, with_task
from counterpoint.manager.shadow import on_shadow_due
from counterpoint.manager.task_commit import task_commit
from counterpoint.manager.task_history import (
    TaskHistory,
    read_beside,
    read_task_history,
    spend_query,
    task_history,
    with_spend,
    with_spend_of,
)
from counterpoint.manager.task_limits import TaskLimits
from counterpoint.manager.task_update import TaskUpdate, UpdateAndWrites, without_effect
from counterpoint.manager.timers import next_reassessment, reassessment, timer_name
from counterpoint.manager.triggers import trigger_of
from counterpoint.proto.approvals import ApprovalDecided
from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.errors import Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.incident_settings import STORE as SETTINGS
from counterpoint.proto.incident_settings import IncidentSettings, ShadowDue, effective_settings, ids_for
from counterpoint.proto.interventions import AmendTask, CancelTask, TaskOverridden
from counterpoint.proto.memory import Commit, Get, List, RecordsChanged, Write
from counterpoint.proto.sessions import SessionRecord, SummarizeSession
from counterpoint.proto.tasks import Task, TaskDue, TaskRouted, TaskWorked

PAGE = 100
"""Waiting tasks in one commit."""
NEWEST = 20
"""Newest records searched for recently ingested ones."""


class ManagerHandlers:
    """Handlers of the manager under task limits. The model of `gateway` compacts sessions."""

    def __init__(self, limits: TaskLimits, approvals: ApprovalDesk, gateway: Gateway | None = None) -> None:
        self.limits = limits
        self._approvals = approvals
        self._gateway = gateway or Gateway(None)

    async def on_routed(self, message: TaskRouted, memory: Memory) -> Commit:
        """Make the record of the task, join its session, set its deadline, and delegate attempt 1."""
        session_id = session_id_of(message)
        ids = ids_for(message.task.target.job if message.task.target else None)
        tasks, sessions, *settings = await memory.query(
            Get(store="tasks", id=message.task_id),
            Get(store="sessions", id=session_id),
            *(Get(store=SETTINGS, id=each) for each in ids),
        )
        if tasks.items:
            history = task_history(tasks.items[0], ())
            return self._commit(memory, history, without_effect(history, "a routing"), message.action_id)
        session_item = sessions.items[0] if sessions.items else None
        session = with_task(next(iter(records(sessions.items, SessionRecord)), None), message, memory.now)
        given = effective_settings(
            setting for result in settings for setting in records(result.items, IncidentSettings)
        )
        commit = task_commit(
            memory,
            self.limits,
            first_attempt(message, given),
            task_id=message.task_id,
            after=(message.action_id,),
            writes=(put("sessions", session_id, session, existing=session_item),),
            web=self._approvals.web(message.task.autonomy, message.project),
        )
        if len(session.task_ids) < 2:
            return commit
        summarize = SummarizeSession(task_id=message.task_id, session_id=session_id)
        return commit.model_copy(update={"messages": (*commit.messages, send(summarize))})

    async def on_summarize(self, message: SummarizeSession, memory: Memory) -> Commit:
        """Compact what the earlier tasks of a session came to."""
        return await on_summarize(message, memory, self._gateway)

    async def on_worked(self, message: TaskWorked, memory: Memory) -> Commit:
        """Propose, complete, escalate or resume by the developer's result, return it, or hold it for an approval.

        Warnings of soft limits that its calls have reached are passed on.
        """
        history, recently_ingested = await _read_for_result(memory, message)
        message = self._approvals.permitted(history, message)
        update, writes = with_warnings(history, *await self._on_worked(memory, history, message, recently_ingested))
        return self._commit(memory, history, update, message.action_id, writes=writes)

    async def _on_worked(
        self, memory: Memory, history: TaskHistory, message: TaskWorked, recently_ingested: bool
    ) -> UpdateAndWrites:
        if update := developer_results.returned(history, message, memory.now):
            return update, ()
        if held := await self._approvals.held(memory, history, message):
            return held
        if is_current(history, message) and (trigger := trigger_of(history, message)):
            return developer_results.handed_over(history, message, trigger, memory.now), ()
        update = developer_results.on_worked(
            history, message, memory.now, self.limits, recently_ingested=recently_ingested
        )
        return update, ()

    async def on_outcome(self, message: TaskOutcomeReported, memory: Memory) -> Commit:
        """Record the outcome of an attempt; complete the task, try again, or escalate."""
        history = await with_spend(memory, await read_task_history(memory, message.task_id))
        update = remember_report(history, message, memory.now) or outcomes.on_outcome(
            history, message, memory.now, self.limits
        )
        return self._commit(memory, history, update, history.task.attempt_action_id, message.action_id)

    async def on_overridden(self, message: TaskOverridden, memory: Memory) -> Commit:
        """Delegate the next attempt under the override."""
        history = await read_task_history(memory, message.task_id)
        update = interventions.on_override(history, message, memory.now)
        return self._commit(memory, history, update, history.task.last_action_id, message.action_id)

    async def on_decided(self, message: ApprovalDecided, memory: Memory) -> Commit:
        """Act on the decision on an approval. Raises `Permanent` for a message without a task."""
        if message.task_id is None:
            raise Permanent(ErrorCode.INVALID_MESSAGE, (Problem(field="task_id", problem="is missing"),))
        history = await with_spend(memory, await read_task_history(memory, message.task_id))
        update, writes = await self._approvals.on_decided(memory, history, message)
        update = await self._woken(memory, history, update)
        return self._commit(memory, history, update, history.task.last_action_id, writes=writes)

    async def on_amended(self, message: AmendTask, memory: Memory) -> Commit:
        """Change the error of the task and start its work again, or do so if new or removed links change its card."""
        history = await read_task_history(memory, message.task_id)
        if message.links or message.removed_links:
            if history.workflow_state.ended or not await changes_card(memory, history.task, message):
                return Commit()
            update = interventions.on_links(history, message, memory.now)
            return self._commit(memory, history, update, history.task.last_action_id)
        update = interventions.on_amendment(history, message, memory.now)
        return self._commit(memory, history, update, history.task.last_action_id)

    async def on_cancel(self, message: CancelTask, memory: Memory) -> Commit:
        """Cancel the task."""
        history = await read_task_history(memory, message.task_id)
        update = interventions.on_cancellation(history, message, memory.now)
        return self._commit(memory, history, update, history.task.last_action_id)

    async def on_due(self, message: TaskDue, memory: Memory) -> Commit:
        """Handle a due timer of the task."""
        history = await with_spend(memory, await read_task_history(memory, message.task_id))
        if message.timer == "tool_refused":
            update, writes = await self._approvals.on_tool_refused(memory, history)
            return self._commit(memory, history, update, history.task.last_action_id, writes=writes)
        if message.timer == "tool_approval":
            update = await self._approvals.on_tool_due(memory, history, message.approval_id)
            return self._commit(memory, history, update, history.task.last_action_id)
        if message.timer == "approval":
            update = await self._woken(memory, history, self._approvals.on_due(memory, history))
            return self._commit(memory, history, update, history.task.last_action_id)
        failed_at = await _last_failure(memory, message.task_id) if message.timer == "quiet" else None
        update = interventions.on_timer(history, message, memory.now, self.limits, failed_at)
        return self._commit(memory, history, update, history.task.last_action_id)

    async def on_changed(self, message: RecordsChanged, memory: Memory) -> Commit:
        """Set a timer that recomputes the confidence of tasks waiting for documents, once per batch of ingests.

        Documents of the project `shared` only affect tasks of `shared`, since a message reads one project.
        """
        if not ends_ingest(message):
            return Commit()
        waiting_tasks = {"state": "input_required", "waiting_for": "documents"}
        woken = Commit()
        async for page in memory.pages(List(store="tasks", where=waiting_tasks, limit=PAGE)):
            woken = self._reassess(records(page.items, Task), memory.now)
            if page.next_cursor is not None:
                await memory.step(woken.model_copy(update={"step": f"before {page.next_cursor}", "last": False}))
        return woken

    def _reassess(self, waiting_tasks: list[Task], now: datetime) -> Commit:
        woken = [task.task_id for task in waiting_tasks if task.resumes < self.limits.max_resumes]
        return Commit(
            messages=tuple(reassessment(task_id, now, self.limits) for task_id in woken),
            cancel_timers=tuple(timer_name(task_id, "reassess") for task_id in woken),
        )

    async def _woken(self, memory: Memory, history: TaskHistory, update: TaskUpdate) -> TaskUpdate:
        """Assess a stop again that was held for an approval, if a record was ingested since the task was submitted."""
        task = update.task
        if task is None or task.waiting_for != "documents" or task.resumes >= self.limits.max_resumes:
            return update
        newest = await memory.query(*(List(store=store, limit=NEWEST) for store in INGESTED))
        if not ingested_since((item for answer in newest for item in answer.items), task.submitted_at):
            return update
        return replace(update, timers=(*update.timers, ("reassess", next_reassessment(memory.now, self.limits))))

    def _commit(
        self,
        memory: Memory,
        history: TaskHistory,
        update: TaskUpdate,
        *after: str | None,
        writes: tuple[Write, ...] = (),
    ) -> Commit:
        return task_commit(
            memory,
            self.limits,
            update,
            task_id=history.task.task_id,
            after=after,
            history=history,
            writes=writes,
            web=self._approvals.web(history.task.autonomy, history.task.project),
        )


def register(
    service: Service,
    limits: TaskLimits | None = None,
    approvals: ApprovalPolicy | None = None,
    gateway: Gateway | None = None,
) -> None:
    """Register the handlers with the service. `approvals` replaces the part of the policy file."""
    handlers = ManagerHandlers(limits or TaskLimits(), ApprovalDesk(approvals or policy().approvals), gateway)
    service.on(TaskRouted)(handlers.on_routed)
    service.on(TaskWorked)(handlers.on_worked)
    service.on(TaskOutcomeReported)(handlers.on_outcome)
    service.on(TaskOverridden)(handlers.on_overridden)
    service.on(ApprovalDecided)(handlers.on_decided)
    service.on(AmendTask)(handlers.on_amended)
    service.on(CancelTask)(handlers.on_cancel)
    service.on(TaskDue)(handlers.on_due)
    service.on(ShadowDue)(on_shadow_due)
    service.on(SummarizeSession)(handlers.on_summarize)
    service.on(RecordsChanged)(handlers.on_changed)


async def _last_failure(memory: Memory, task_id: str) -> datetime | None:
    """Return when the incident of a task or a part of it failed last; None for a task without an incident."""
    item = await memory.get("incidents", task_id)
    times = [failure["at"] for failure in item.body.get("failures", ())] if item else []
    times += [part["last_at"] for part in item.body.get("live", {}).get("merged", ())] if item else []
    return max(map(datetime.fromisoformat, times), default=None)


async def _read_for_result(memory: Memory, message: TaskWorked) -> tuple[TaskHistory, bool]:
    """Read the history of a task with its spending, and for a stop whether a record was ingested since the task was
    submitted: an ingest before the task waited sets no timer for it. Of an ended task only the history may be read."""
    newest = [List(store=store, limit=NEWEST) for store in INGESTED] if message.outcome == "stopped" else []
    try:
        history, (spend, *lists) = await read_beside(memory, message.task_id, spend_query(message.task_id), *newest)
    except Denied as denied:
        if denied.rule != ErrorCode.ENDED:
            raise
        return await read_task_history(memory, message.task_id), False
    ingested = ingested_since((item for answer in lists for item in answer.items), history.task.submitted_at)
    return with_spend_of(history, spend), ingested
