"""Deliveries of digests: planned with the first event before each digest, and filled when it is due."""

from collections.abc import Iterable

from counterpoint.client import Memory, put, record, records, send
from counterpoint.guard.policy import policy
from counterpoint.proto.memory import Commit, Get, Item, List, Outgoing, Write
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import Task
from counterpoint.router.intake.incident_facts import facts_of
from counterpoint.router.notify.deliveries import STORE, Delivery, conversation_id
from counterpoint.router.notify.digest import IncidentDigest, digest_id, digest_of
from counterpoint.router.notify.events import TaskEvent, audience_of_task
from counterpoint.router.notify.receivers import Receiver
from counterpoint.router.notify.summary import IncidentSummary, summary_of

TASKS_LIMIT = 500
"""Tasks of a project that one digest reads, those that changed last."""
_PAGE = 25


async def plan_digests(event: TaskEvent, receivers: Iterable[Receiver], memory: Memory) -> Commit:
    """Return the commit of the digests that have to include an event: planned, or from an earlier time on."""
    due = [(each, each.digest.next_after(memory.now)) for each in receivers if each.digest is not None]
    ids = [digest_id(receiver.name, memory.project, at) for receiver, at in due]
    found = await memory.query(*(Get(store=STORE, id=each) for each in ids))
    known = {item.id: item for answer in found for item in answer.items}
    writes, messages = list[Write](), list[Outgoing]()
    for (receiver, at), delivery_id in zip(due, ids, strict=True):
        assert receiver.digest is not None
        item = known.get(delivery_id)
        before = record(item, Delivery) if item else None
        if before is None:
            since = min(receiver.digest.last_before(at), event.changed_at)
            new = Delivery(
                receiver=receiver.name,
                project=memory.project,
                digest_since=since,
                digest_until=at,
                created_at=memory.now,
            )
            writes.append(put(STORE, delivery_id, new))
            messages.append(send(NotificationDue(delivery_id=delivery_id, turn=1), due_at=at))
        elif before.digest_since is not None and event.changed_at < before.digest_since:
            writes.append(
                put(STORE, delivery_id, before.model_copy(update={"digest_since": event.changed_at}), existing=item)
            )
    return Commit(writes=tuple(writes), messages=tuple(messages))


async def fill_digest(receiver: Receiver, delivery: Delivery, memory: Memory) -> IncidentDigest | None:
    """Read what a digest tells, None if nothing of it concerns the receiver any more."""
    since, until = delivery.digest_since, delivery.digest_until
    assert since is not None
    assert until is not None
    summaries, read, cursor = list[IncidentSummary](), 0, None
    while read < TASKS_LIMIT:
        (page,) = await memory.query(List(store="tasks", limit=_PAGE, cursor=cursor))
        changed = [item for item in page.items if item.at >= since]
        summaries += await _summaries(receiver, changed, memory)
        read += len(changed)
        cursor = page.next_cursor
        if cursor is None or len(changed) < len(page.items):
            break
    return digest_of(memory.project, since, until, summaries, is_cut=read >= TASKS_LIMIT)


async def _summaries(receiver: Receiver, items: list[Item], memory: Memory) -> list[IncidentSummary]:
    """Return the summaries of the tasks that concern a receiver, as they were last delivered to it."""
    clearance = policy().level(receiver.clearance)
    tasks = [(item, record(item, Task)) for item in items]
    facts = await facts_of(memory, (task.task_id for _, task in tasks))
    found = await memory.query(
        *(Get(store=STORE, id=conversation_id(receiver.name, task.task_id)) for _, task in tasks)
    )
    deliveries = (each for answer in found for each in records(answer.items, Delivery))
    known = {each.incident.task_id: each.incident for each in deliveries if each.incident}
    summaries = list[IncidentSummary]()
    for item, task in tasks:
        task_facts = facts.get(task.task_id, {})
        audience = audience_of_task(receiver, task, task_facts)
        if audience is None or task.shadow:
            continue
        summary = summary_of(
            task, task_facts, audience=audience, owners=receiver.owners, withheld=item.label > clearance
        )
        if before := known.get(task.task_id):
            summary = summary.model_copy(update={"occurrence": before.occurrence, "first_at": before.first_at})
        summaries.append(summary)
    return summaries
