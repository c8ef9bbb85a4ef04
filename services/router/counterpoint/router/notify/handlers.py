"""Handlers of notifications: what is to be told is committed, then the receiver is called, then the outcome committed.

A call is made by whoever holds the delivery. A call whose process was killed is made again under the same key, which
receivers know: at least once, and never twice for a receiver that looks at the key.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import structlog
from cachetools import LRUCache
from prometheus_client import Counter

from counterpoint.client import Memory, put, record, send
from counterpoint.proto.approvals import STORE as APPROVALS
from counterpoint.proto.approvals import Approval, decision_of
from counterpoint.proto.errors import Transient
from counterpoint.proto.ids import new_id
from counterpoint.proto.memory import Commit, Get, Item
from counterpoint.proto.messages import Message, utc_now
from counterpoint.proto.notifications import NotificationDue
from counterpoint.proto.tasks import Task
from counterpoint.router.intake.incident_facts import facts_of
from counterpoint.router.notify.caller import Caller, ReceiverReply
from counterpoint.router.notify.deliveries import STORE, Delivery, conversation_id, retry_delay, spread, undeliverable
from counterpoint.router.notify.digests import fill_digest, plan_digests
from counterpoint.router.notify.events import TaskEvent, audience_of, cloud_event_of, incident_of, opens
from counterpoint.router.notify.lanes import BUSY_S, Lane
from counterpoint.router.notify.receivers import Receiver
from counterpoint.router.notify.summary import Audience, IncidentSummary

log = structlog.get_logger()

DELIVERIES = Counter("counterpoint_notifications_total", "Calls to receivers, by outcome", ["receiver", "outcome"])
HOLD_MARGIN_S = 5.0
"""Time after a call's timeout until another process may make it."""
CALLS_LIMIT = 24
"""Calls to all receivers at once: below half of the deliveries that the router handles at once by default."""
_OUTCOMES = 10_000


class Notifications:
    """Tells `receivers` what happens to tasks."""

    def __init__(self, receivers: Sequence[Receiver], caller: Caller) -> None:
        self._receivers = {receiver.name: receiver for receiver in receivers}
        self._lanes = {receiver.name: Lane() for receiver in receivers}
        self._caller = caller
        self._holder = new_id()
        self._calling: set[str] = set()
        self._outcomes: LRUCache[tuple[str, int], ReceiverReply] = LRUCache(_OUTCOMES)

    async def plan(self, message: Message, memory: Memory) -> Commit:
        """Return the commit of the deliveries of an event of a task."""
        task_id = getattr(message, "task_id", None)
        return await self._plan(task_id, message, memory) if task_id else Commit()

    async def _plan(self, task_id: str, message: Message | None, memory: Memory) -> Commit:
        item = await memory.get("tasks", task_id)
        task = record(item, Task) if item else None
        if item is None or task is None or task.shadow:
            return Commit()
        facts = (await facts_of(memory, (task.task_id,))).get(task.task_id, {})
        pending = await memory.get("approvals", task.approval.approval_id) if task.approval else None
        approval = record(pending, Approval) if pending else None
        label = max(item.label, pending.label if pending else 0)
        event = TaskEvent(message, memory.origin.message_id, memory.now, task, label, facts, item.at, approval)
        return await self._deliveries(event, memory)

    async def _deliveries(self, event: TaskEvent, memory: Memory) -> Commit:
        recipients = [(each, audience) for each in self._receivers.values() if (audience := audience_of(each, event))]
        incidents = [(each, audience) for each, audience in recipients if not each.is_per_event]
        digests = await plan_digests(event, [receiver for receiver, _ in recipients], memory)
        known = await self._conversations(event, [receiver for receiver, _ in incidents], memory)
        writes, messages = list(digests.writes), list(digests.messages)
        for receiver, _ in recipients:
            if receiver.is_per_event and opens(receiver, event):
                delivery = self._delivery(receiver, event, memory).model_copy(
                    update={"event": cloud_event_of(receiver, event)}
                )
                delivery_id = memory.id("delivery", receiver.name)
                writes.append(put(STORE, delivery_id, delivery))
                messages.append(send(NotificationDue(delivery_id=delivery_id, turn=1)))
        for receiver, audience in incidents:
            item = known.get(conversation_id(receiver.name, event.task.task_id))
            before = record(item, Delivery) if item else None
            after = self._conversation(receiver, event, audience, known, before, memory)
            if after is not None and after is not before:
                delivery_id = conversation_id(receiver.name, event.task.task_id)
                writes.append(put(STORE, delivery_id, after, existing=item))
                if before is None or before.turn != after.turn:
                    due_at = None if before else memory.now + timedelta(seconds=receiver.wait_s)
                    messages.append(send(NotificationDue(delivery_id=delivery_id, turn=after.turn), due_at=due_at))
        return Commit(writes=tuple(writes), messages=tuple(messages))

    async def on_due(self, message: NotificationDue, memory: Memory) -> Commit:
        """Call the receiver of a delivery, and commit the outcome. Raises `Permanent` after the last attempt."""
        if message.approval_id is not None:
            return await self._decided(message.approval_id, memory)
        if message.task_id is not None:
            return await self._plan(message.task_id, None, memory)
        item = await memory.get(STORE, message.delivery_id)
        delivery = record(item, Delivery) if item else None
        if item is None or delivery is None or delivery.turn != message.turn or delivery.state == "delivered":
            return Commit()
        receiver = self._receivers.get(delivery.receiver)
        if receiver is None:
            raise undeliverable(f"receiver {delivery.receiver}", "is no receiver of this configuration")
        retried = delivery.state == "dead"
        known = None if retried else self._outcomes.get((item.id, delivery.turn))
        if known is None:
            if item.id in self._calling:
                raise Transient("this call is under way", retry_after_s=2.0)
            if delivery.holder != self._holder and (held_s := _held_s(delivery)) > 0:
                raise Transient("another process makes this call", retry_after_s=held_s)
            if _is_moot(receiver, delivery):
                return _planned(item, delivery.dropped(), None)
            lane = self._lanes[receiver.name]
            if (later := self._later(receiver, lane, item.id, delivery)) is not None:
                return _planned(item, delivery.deferred(), later)
            if delivery.digest_since is not None and delivery.digest is None:
                digest = await fill_digest(receiver, delivery, memory)
                if digest is None:
                    return _planned(item, delivery.delivered(delivery.revision, None, utc_now()), None)
                delivery = delivery.model_copy(update={"digest": digest})
            item, delivery, known = await self._call(lane, receiver, item, delivery, memory)
        return await self._ended(item, delivery, known, memory)

    async def _decided(self, approval_id: str, memory: Memory) -> Commit:
        """Plan what each receiver is told of the decision on an approval."""
        item = await memory.get(APPROVALS, approval_id)
        decided = decision_of(record(item, Approval)) if item else None
        return await self.plan(decided, memory) if decided else Commit()

    def _later(self, receiver: Receiver, lane: Lane, delivery_id: str, delivery: Delivery) -> datetime | None:
        """Return when a call may be made that may not be made now: in quiet hours, or with too many calls under way."""
        now = utc_now()
        quiet_until = None if delivery.digest_since else receiver.quiet_until(now, delivery.severity)
        delay_s = lane.delay_s() or (BUSY_S if len(self._calling) >= CALLS_LIMIT else 0.0)
        return quiet_until or (now + spread(delivery_id, delay_s) if delay_s > 0 else None)

    async def _conversations(self, event: TaskEvent, receivers: Sequence[Receiver], memory: Memory) -> dict[str, Item]:
        """Read the deliveries of the incident, and of the one before it."""
        tasks = [event.task.task_id, *filter(None, (event.previous_incident,))]
        ids = [conversation_id(receiver.name, task) for receiver in receivers for task in tasks]
        found = await memory.query(*(Get(store=STORE, id=each) for each in ids))
        return {item.id: item for answer in found for item in answer.items}

    def _conversation(
        self,
        receiver: Receiver,
        event: TaskEvent,
        audience: Audience,
        known: dict[str, Item],
        before: Delivery | None,
        memory: Memory,
    ) -> Delivery | None:
        """Return the delivery of an incident after an event, `before` itself if nothing changes; None for none."""
        if event.message is None and not receiver.updates_in_place:
            return before
        incident = incident_of(receiver, event, audience)
        if before is not None and before.incident is not None:
            kept = {"occurrence": before.incident.occurrence, "first_at": before.incident.first_at}
            incident = incident.model_copy(update=kept)
            return before if incident == before.incident else before.revised(incident)
        if not opens(receiver, event):
            return None
        new = self._delivery(receiver, event, memory)
        previous = event.previous_incident and known.get(conversation_id(receiver.name, event.previous_incident))
        if previous:
            first = record(previous, Delivery)
            incident = _recurring(incident, first)
            new = new.model_copy(update={"thread": first.thread or first.ref})
        return new.model_copy(update={"incident": incident, "owner": incident.owner})

    def _delivery(self, receiver: Receiver, event: TaskEvent, memory: Memory) -> Delivery:
        return Delivery(
            receiver=receiver.name,
            project=memory.project,
            task_id=event.task.task_id,
            severity=event.task.priority,
            created_at=memory.now,
        )

    async def _held(self, item: Item, delivery: Delivery, memory: Memory) -> tuple[Item, Delivery]:
        """Commit that this process makes the call."""
        until = utc_now() + timedelta(seconds=self._caller.timeout_s + HOLD_MARGIN_S)
        held = delivery.held(self._holder, until)
        write = put(STORE, item.id, held, existing=item)
        await memory.step(Commit(step=f"hold {item.version}", last=False, writes=(write,)))
        return item.model_copy(update={"version": item.version + 1}), held

    async def _call(
        self, lane: Lane, receiver: Receiver, item: Item, delivery: Delivery, memory: Memory
    ) -> tuple[Item, Delivery, ReceiverReply]:
        """Commit that this process makes the call, and make it. The lane counts it from the beginning."""
        lane.begin()
        self._calling.add(item.id)
        try:
            item, delivery = await self._held(item, delivery, memory)
            outcome = await self._caller.call(receiver, item.id, delivery, utc_now())
        finally:
            self._calling.discard(item.id)
            lane.end()
        lane.note(failed=outcome.error is not None, retry_after_s=outcome.retry_after_s)
        self._outcomes[item.id, delivery.turn] = outcome
        DELIVERIES.labels(receiver.name, "failed" if outcome.error else "accepted").inc()
        told = log.warning if outcome.error else log.info
        told(
            "notification.called",
            receiver=receiver.name,
            delivery=item.id,
            attempt=delivery.attempt,
            error=outcome.error,
        )
        return item, delivery, outcome

    async def _ended(self, item: Item, delivery: Delivery, outcome: ReceiverReply, memory: Memory) -> Commit:
        """Return the commit of a call's outcome. Raises `Permanent` after the last attempt."""
        if outcome.error is None:
            after = delivery.delivered(outcome.revision, outcome.ref, utc_now())
            return _planned(item, after, None)
        if outcome.gone and (anew := delivery.without_message(outcome.error)) is not None:
            return _planned(item, anew, utc_now())
        delay = None if outcome.final else retry_delay(item.id, delivery.attempt, outcome.retry_after_s)
        if delay is not None:
            return _planned(item, delivery.failed(outcome.error), utc_now() + delay)
        dead = put(STORE, item.id, delivery.died(outcome.error), existing=item)
        await memory.step(Commit(step=f"dead {item.version}", last=False, writes=(dead,)))
        raise undeliverable(f"receiver {delivery.receiver}", f"did not take it: {outcome.error}")


def _planned(item: Item, after: Delivery, due_at: datetime | None) -> Commit:
    """Return the commit of a delivery, with the message of its next call if one is planned."""
    write = put(STORE, item.id, after, existing=item)
    if after.state != "pending":
        return Commit(writes=(write,))
    due = NotificationDue(delivery_id=item.id, turn=after.turn)
    return Commit(writes=(write,), messages=(send(due, due_at=due_at),))


def _is_moot(receiver: Receiver, delivery: Delivery) -> bool:
    """Whether an incident was cancelled before its receiver was told of it, most often as a part of another one."""
    cancelled = delivery.incident is not None and delivery.incident.status == "cancelled"
    return cancelled and delivery.is_untold and "cancelled" not in receiver.events


def _recurring(incident: IncidentSummary, previous: Delivery) -> IncidentSummary:
    """Return a summary that counts the incident before it."""
    if previous.incident is None:
        return incident
    counted = {"occurrence": previous.incident.occurrence + 1, "first_at": previous.incident.first_at}
    return incident.model_copy(update=counted)


def _held_s(delivery: Delivery) -> float:
    """Return the seconds for which the holder of a delivery may still make the call."""
    return (delivery.held_until - utc_now()).total_seconds() if delivery.held_until else 0.0
