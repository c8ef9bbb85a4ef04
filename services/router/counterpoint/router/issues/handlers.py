"""Handlers of issue synchronization: the work is committed, then the forge is called, then the outcome is committed.

Calls are made by whoever holds the issue. What a killed process has done is found at the forge by its marks.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from cachetools import LRUCache
from prometheus_client import Counter

from counterpoint.client import Memory, put, record, send
from counterpoint.guard.policy import policy
from counterpoint.proto.errors import ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.issues import IssueDue
from counterpoint.proto.memory import Commit, Get, Item, Outgoing, Write
from counterpoint.proto.messages import Message, utc_now
from counterpoint.proto.tasks import ENDED, Task
from counterpoint.router.intake.incident_facts import facts_of
from counterpoint.router.issues.calls import RateLimit
from counterpoint.router.issues.dialects import forge_of
from counterpoint.router.issues.effects import ForgeEffects
from counterpoint.router.issues.inbound import act_on
from counterpoint.router.issues.marks import CommentMarks
from counterpoint.router.issues.poll import Polls, first_poll
from counterpoint.router.issues.sync import Comparison, IssueComparer
from counterpoint.router.issues.synced_issue import STORE, SyncedIssue, issue_id, poll_id
from counterpoint.router.issues.texts import IssueContent, content_of
from counterpoint.router.issues.touch import tasks_of_issues, touch_issue
from counterpoint.router.issues.trackers import Tracker
from counterpoint.router.notify.deliveries import retry_delay, spread
from counterpoint.router.notify.events import EVENTS
from counterpoint.router.notify.handlers import HOLD_MARGIN_S
from counterpoint.router.notify.lanes import Lane
from counterpoint.router.notify.summary import severity_level, summary_of
from counterpoint.router.webhooks.issue_events import IssueEvent

log = structlog.get_logger()

COMPARISONS = Counter("counterpoint_issues_total", "Comparisons of issues with a forge", ["tracker", "outcome"])
TIMEOUTS_IN_ONE = 6
"""Time of one comparison, and of the replies after it, in timeouts of a call."""
_OUTCOMES = 1000


class IssueSync:
    """Keeps the issues of `trackers` in step with tasks."""

    def __init__(self, trackers: Sequence[Tracker], timeout_s: float, effects: ForgeEffects) -> None:
        self._trackers = {tracker.name: tracker for tracker in trackers}
        self._lanes = {tracker.name: Lane() for tracker in trackers}
        limits = {tracker.name: RateLimit() for tracker in trackers}
        self._forges = {each.name: forge_of(each, limits[each.name], timeout_s) for each in trackers}
        self.polls = Polls(self._trackers, self._forges, limits)
        self._effects = effects
        self._comparison_s = timeout_s * TIMEOUTS_IN_ONE
        self._holder = new_id()
        self._calling: set[str] = set()
        self._outcomes: LRUCache[tuple[str, int], Comparison] = LRUCache(_OUTCOMES)

    async def plan(self, message: Message, memory: Memory) -> Commit:
        """Return the commit that plans the comparison of a task's issues, after an event of the task."""
        trackers = [each for each in self._trackers.values() if each.project == memory.project]
        task_id = getattr(message, "task_id", None)
        item = await memory.get("tasks", task_id) if trackers and task_id else None
        task = record(item, Task) if item else None
        if task is None or task.shadow:
            return Commit()
        writes, messages = list[Write](), list[Outgoing]()
        for tracker in trackers:
            wanted = (issue_id(tracker.name, task.task_id), poll_id(tracker.name))
            found = await memory.query(*(Get(store=STORE, id=each) for each in wanted))
            known, poll = (answer.items[0] if answer.items else None for answer in found)
            if known is None and not opens(tracker, message, task):
                continue
            before = record(known, SyncedIssue) if known else None
            after = before.touched() if before else _new(tracker, task, memory)
            writes.append(put(STORE, wanted[0], after, existing=known))
            if before is None or after.turn != before.turn:
                messages.append(send(IssueDue(issue_id=wanted[0], turn=after.turn)))
            more = first_poll(tracker, poll, memory.now)
            writes += more.writes
            messages += more.messages
        return Commit(writes=tuple(writes), messages=tuple(messages))

    async def touch(self, memory: Memory, event: IssueEvent) -> tuple[str | None, Commit]:
        """Return the task of an issue that an event is about, and the commit that plans its comparison."""
        return await touch_issue(tuple(self._trackers.values()), memory, event)

    async def tasks_of(self, memory: Memory, repository_url: str, numbers: Sequence[int]) -> tuple[str, ...]:
        """Return the tasks of the synchronized issues of a repository with these numbers."""
        return await tasks_of_issues(tuple(self._trackers.values()), memory, repository_url, numbers)

    async def on_due(self, message: IssueDue, memory: Memory) -> Commit:
        """Compare an issue with its forge, and commit the outcome. Raises `Permanent` after the last attempt."""
        item = await memory.get(STORE, message.issue_id)
        sync = record(item, SyncedIssue) if item else None
        if item is None or sync is None or sync.turn != message.turn or sync.state in ("synced", "left"):
            return Commit()
        tracker = self._trackers.get(sync.tracker)
        if tracker is None or tracker.project != memory.project:
            raise out_of_step(f"tracker {sync.tracker}", f"is no tracker of project {memory.project} any more")
        known = None if sync.state == "dead" else self._outcomes.get((item.id, sync.turn))
        if known is None:
            if item.id in self._calling:
                raise Transient("this issue is being compared", retry_after_s=2.0)
            if sync.holder != self._holder and (held_s := _held_s(sync)) > 0:
                raise Transient("another process compares this issue", retry_after_s=held_s)
            delay_s = self._lanes[tracker.name].delay_s() or self.polls.pause_s(tracker)
            if delay_s > 0:
                return _planned(item, sync.deferred(), utc_now() + spread(item.id, delay_s))
            item, sync, known = await self._compare(tracker, item, sync, memory)
        return await self._ended(item, sync, known, memory)

    async def _compare(
        self, tracker: Tracker, item: Item, sync: SyncedIssue, memory: Memory
    ) -> tuple[Item, SyncedIssue, Comparison]:
        """Commit that this process makes the calls, and make them."""
        task, content = await self._content(tracker, sync, memory)
        lane = self._lanes[tracker.name]
        lane.begin()
        self._calling.add(item.id)
        try:
            held = sync.held(
                self._holder, utc_now() + timedelta(seconds=2 * self._comparison_s + HOLD_MARGIN_S), content.labels
            )
            write = put(STORE, item.id, held, existing=item)
            await memory.step(Commit(step=f"hold {item.version}", last=False, writes=(write,)))
            marks = CommentMarks(item.id, tracker.token.get_secret_value())
            comparer = IssueComparer(self._forges[tracker.name], item.id, sync, content, marks)
            outcome = await comparer.compare(self._comparison_s)
            await comparer.reply(await act_on(self._effects, tracker, task, outcome), self._comparison_s)
        finally:
            self._calling.discard(item.id)
            lane.end()
        error = outcome.error
        lane.note(failed=error is not None and error.pause_s is None)
        self._outcomes[item.id, sync.turn] = outcome
        COMPARISONS.labels(tracker.name, "failed" if error else "done").inc()
        told = log.warning if error else log.info
        told("issue.compared", tracker=tracker.name, issue=item.id, error=str(error) if error else None)
        return item.model_copy(update={"version": item.version + 1}), held, outcome

    async def _content(self, tracker: Tracker, sync: SyncedIssue, memory: Memory) -> tuple[Task, IssueContent]:
        """Read the task as it is now, and return our side of its issue. Raises `Permanent` if it was erased."""
        item = await memory.get("tasks", sync.task_id)
        if item is None:
            raise out_of_step(f"task {sync.task_id}", "is not known any more")
        task = record(item, Task)
        facts = (await facts_of(memory, (task.task_id,))).get(task.task_id, {})
        withheld = item.label > policy().level(tracker.clearance)
        before = await self._number_before(tracker, task, memory)
        return task, content_of(tracker, task, summary_of(task, facts, withheld=withheld), before)

    async def _number_before(self, tracker: Tracker, task: Task, memory: Memory) -> int | None:
        """Return the number of the issue of the same job's incident before this one."""
        previous = (task.context or {}).get("previous_incident")
        item = await memory.get(STORE, issue_id(tracker.name, previous)) if isinstance(previous, str) else None
        return record(item, SyncedIssue).number if item else None

    async def _ended(self, item: Item, sync: SyncedIssue, outcome: Comparison, memory: Memory) -> Commit:
        """Return the commit of a comparison's outcome. Raises `Permanent` after the last attempt."""
        error, progress = outcome.error, outcome.progress
        if error is None:
            return _planned(item, sync.synced(outcome.revision, progress), None)
        if error.pause_s is not None:
            later = utc_now() + spread(item.id, error.pause_s)
            return _planned(item, sync.deferred(progress), later)
        delay = None if error.final else retry_delay(item.id, sync.attempt)
        if delay is not None:
            return _planned(item, sync.failed(str(error), progress), utc_now() + delay)
        dead = put(STORE, item.id, sync.died(str(error), progress), existing=item)
        await memory.step(Commit(step=f"dead {item.version}", last=False, writes=(dead,)))
        raise out_of_step(f"issue of task {sync.task_id} in {sync.tracker}", f"could not be written: {error}")


def opens(tracker: Tracker, message: Message, task: Task) -> bool:
    """Whether an event of a task opens an issue; other events only update one."""
    name = EVENTS.get(type(message))
    if name is None or task.kind not in tracker.kinds:
        return False
    if severity_level(task.priority) < severity_level(tracker.severity):
        return False
    if task.kind == "plan" and name == "completed":
        return True
    return name in tracker.events and (task.state not in ENDED or name in ("failed", "completed", "cancelled"))


def out_of_step(what: str, problem: str) -> Permanent:
    """Return the error that dead-letters a comparison, from where a person can retry it."""
    return Permanent(ErrorCode.REFUSED, (Problem(field=what, problem=problem),))


def _new(tracker: Tracker, task: Task, memory: Memory) -> SyncedIssue:
    return SyncedIssue(tracker=tracker.name, project=memory.project, task_id=task.task_id, created_at=memory.now)


def _planned(item: Item, after: SyncedIssue, due_at: datetime | None) -> Commit:
    """Return the commit of an issue, with the message of its next comparison if one is planned."""
    write = put(STORE, item.id, after, existing=item)
    if after.state != "pending":
        return Commit(writes=(write,))
    due = IssueDue(issue_id=item.id, turn=after.turn)
    return Commit(writes=(write,), messages=(send(due, due_at=due_at),))


def _held_s(sync: SyncedIssue) -> float:
    """Return the seconds for which the holder of an issue may still make calls."""
    return (sync.held_until - utc_now()).total_seconds() if sync.held_until else 0.0
