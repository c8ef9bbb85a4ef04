"""Handlers of the lineage service."""

from counterpoint.bus import Service
from counterpoint.lineage.corrections import links_of, relinked
from counterpoint.lineage.endings import task_ended
from counterpoint.lineage.incidents import Limits
from counterpoint.lineage.intake import take
from counterpoint.lineage.own import Tracer
from counterpoint.lineage.reading import parse
from counterpoint.lineage.turns import Turns
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.memory import Commit, RecordsChanged
from counterpoint.recall import Memory


def register(service: Service, limits: Limits, turns: Turns | None = None) -> None:
    """Have the service handle its messages; with `turns` one after the other where something is decided."""

    tracer = Tracer()

    async def on_event(message: LineageEvent, memory: Memory) -> Commit:
        event = parse(message.event)
        if turns is None:
            return await take(event, memory, limits, waited=message.waited)
        return await turns.take(event, memory, limits, waited=message.waited)

    async def on_changed(message: RecordsChanged, memory: Memory) -> Commit:
        if message.service == "router":
            links = links_of(message)
            return await relinked(links, memory) if links else Commit()
        commit = await tracer.trace(message, memory)
        ended = await task_ended(message.task_id, memory) if message.task_id and _moved(message) else Commit()
        messages = (*commit.messages, *ended.messages)
        return commit.model_copy(update={"writes": (*commit.writes, *ended.writes), "messages": messages})

    service.on(LineageEvent)(on_event)
    service.on(RecordsChanged)(on_changed)


def _moved(changed: RecordsChanged) -> bool:
    """Whether the record of an incident's task was written."""
    task_id = changed.task_id or ""
    return task_id.startswith("incident-") and any(w.store == "tasks" and w.id == task_id for w in changed.writes)
