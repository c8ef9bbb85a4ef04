"""What the manager does with each message it is handed: read the dossier, decide, commit."""

from datetime import datetime

from counterpoint.bus import Service
from counterpoint.manager import interventions, outcomes, work
from counterpoint.manager.bounds import Bounds
from counterpoint.manager.commits import commit
from counterpoint.manager.dossier import Dossier, dossier_of, open_dossier
from counterpoint.manager.knowledge import INGESTED, came_in, has_changed
from counterpoint.manager.moves import Move, late
from counterpoint.manager.routing import begun
from counterpoint.manager.sessions import joined, session_id_of
from counterpoint.manager.shadow import on_shadow_due
from counterpoint.manager.timers import name_of, reassessment
from counterpoint.proto.attempts import TaskOutcomeReported
from counterpoint.proto.incident_settings import STORE as SETTINGS
from counterpoint.proto.incident_settings import IncidentSettings, ShadowDue, ids_for, in_force
from counterpoint.proto.interventions import AmendTask, CancelTask, TaskOverridden
from counterpoint.proto.memory import Commit, Get, List, RecordsChanged
from counterpoint.proto.records import Session
from counterpoint.proto.tasks import Task, TaskDue, TaskRouted, TaskWorked
from counterpoint.recall import Memory, put, records

PAGE = 100
"""Waiting tasks that one commit sets a timer for."""
NEWEST = 20
"""Records among which what was ingested lately is looked for: other tasks leave attempts as well."""


class Handlers:
    """The manager's handlers under some bounds."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds

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
            known = dossier_of(tasks.items[0], ())
            return self._commit(memory, known, late(known, "a routing"), message.action_id)
        seen = sessions.items[0] if sessions.items else None
        session = joined(next(iter(records(sessions.items, Session)), None), message, memory.now)
        return commit(
            memory,
            self.bounds,
            begun(message, in_force(one for found in settings for one in records(found.items, IncidentSettings))),
            task_id=message.task_id,
            after=(message.action_id,),
            writes=(put("sessions", session_id, session, seen=seen),),
        )

    async def on_worked(self, message: TaskWorked, memory: Memory) -> Commit:
        """Propose, complete, escalate or resume, by what the developer came to."""
        dossier = await open_dossier(memory, message.task_id)
        newly_known = message.outcome == "stopped" and await _known_since(memory, dossier.task.submitted_at)
        move = work.worked(dossier, message, memory.now, self.bounds, newly_known=newly_known)
        return self._commit(memory, dossier, move, message.action_id)

    async def on_outcome(self, message: TaskOutcomeReported, memory: Memory) -> Commit:
        """Remember how an attempt went; complete the task, try again, or escalate."""
        dossier = await open_dossier(memory, message.task_id)
        move = outcomes.told(dossier, message, memory.now, self.bounds)
        return self._commit(memory, dossier, move, dossier.task.attempt_action_id, message.action_id)

    async def on_overridden(self, message: TaskOverridden, memory: Memory) -> Commit:
        """Delegate the next attempt under the override."""
        dossier = await open_dossier(memory, message.task_id)
        move = interventions.overridden(dossier, message, memory.now)
        return self._commit(memory, dossier, move, dossier.task.last_action_id, message.action_id)

    async def on_amended(self, message: AmendTask, memory: Memory) -> Commit:
        """Point the task at another error and begin its work again."""
        dossier = await open_dossier(memory, message.task_id)
        move = interventions.amended(dossier, message, memory.now)
        return self._commit(memory, dossier, move, dossier.task.last_action_id)

    async def on_cancel(self, message: CancelTask, memory: Memory) -> Commit:
        """End the task, whatever it is doing."""
        dossier = await open_dossier(memory, message.task_id)
        move = interventions.cancelled(dossier, message, memory.now)
        return self._commit(memory, dossier, move, dossier.task.last_action_id)

    async def on_due(self, message: TaskDue, memory: Memory) -> Commit:
        """Do what a timer of the task was set for."""
        dossier = await open_dossier(memory, message.task_id)
        failed_at = await _last_failure(memory, message.task_id) if message.timer == "quiet" else None
        move = interventions.due(dossier, message, memory.now, self.bounds, failed_at)
        return self._commit(memory, dossier, move, dossier.task.last_action_id)

    async def on_changed(self, message: RecordsChanged, memory: Memory) -> Commit:
        """Have the confidence of tasks that wait for documents recomputed, once for all that comes in together.

        Knowledge of the project `shared` reaches the tasks of `shared` alone: a message reads one project.
        """
        if not has_changed(message):
            return Commit()
        waiting = {"state": "input_required", "waiting_for": "documents"}
        woken = Commit()
        async for page in memory.pages(List(store="tasks", where=waiting, limit=PAGE)):
            woken = self._reassess(records(page.items, Task), memory.now)
            if page.next_cursor is not None:
                await memory.step(woken.model_copy(update={"step": f"before {page.next_cursor}", "last": False}))
        return woken

    def _reassess(self, waiting: list[Task], now: datetime) -> Commit:
        woken = [task.task_id for task in waiting if task.resumes < self.bounds.max_resumes]
        return Commit(
            messages=tuple(reassessment(task_id, now, self.bounds) for task_id in woken),
            cancel_timers=tuple(name_of(task_id, "reassess") for task_id in woken),
        )

    def _commit(self, memory: Memory, dossier: Dossier, move: Move, *after: str | None) -> Commit:
        return commit(memory, self.bounds, move, task_id=dossier.task.task_id, after=after, dossier=dossier)


def register(service: Service, bounds: Bounds | None = None) -> None:
    """Have the service handle all that the manager is handed."""
    handlers = Handlers(bounds or Bounds())
    service.on(TaskRouted)(handlers.on_routed)
    service.on(TaskWorked)(handlers.on_worked)
    service.on(TaskOutcomeReported)(handlers.on_outcome)
    service.on(TaskOverridden)(handlers.on_overridden)
    service.on(AmendTask)(handlers.on_amended)
    service.on(CancelTask)(handlers.on_cancel)
    service.on(TaskDue)(handlers.on_due)
    service.on(ShadowDue)(on_shadow_due)
    service.on(RecordsChanged)(handlers.on_changed)


async def _last_failure(memory: Memory, task_id: str) -> datetime | None:
    """Return when the incident of a task or a part of it failed last; None for a task that is no incident's."""
    item = await memory.get("incidents", task_id)
    times = [failure["at"] for failure in item.body.get("failures", ())] if item else []
    times += [part["last_at"] for part in item.body.get("live", {}).get("merged", ())] if item else []
    return max(map(datetime.fromisoformat, times), default=None)


async def _known_since(memory: Memory, since: datetime) -> bool:
    """Whether something came in after `since`: an ingest that was over before the task waited wakes nobody else."""
    found = await memory.query(*(List(store=store, limit=NEWEST) for store in INGESTED))
    return came_in((item for answer in found for item in answer.items), since)
