"""Handlers of the lineage service."""

from counterpoint.bus import Service
from counterpoint.lineage.corrections import links_of, relinked
from counterpoint.lineage.endings import task_ended
from counterpoint.lineage.incidents import Limits
from counterpoint.lineage.intake import take
from counterpoint.lineage.own import traced
from counterpoint.lineage.reading import parse
from counterpoint.lineage.turns import Turns
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.memory import Commit, RecordsChanged
from counterpoint.recall import Memory


def register(service: Service, limits: Limits, turns: Turns | None = None) -> None:
    """Have the service handle its messages; with `turns` one after the other where something is decided."""

    async def on_event(message: LineageEvent, memory: Memory) -> Commit:
        event = await memory.harmless(parse(message.event))
        if turns is None:
            return await take(event, memory, limits, waited=message.waited)
        return await turns.take(event, memory, limits, waited=message.waited)

    async def on_changed(message: RecordsChanged, memory: Memory) -> Commit:
        if message.service == "router":
            links = links_of(message)
            return await relinked(links, memory) if links else Commit()
        task_id = message.task_id
        if not message.ended or task_id is None:
            return Commit()
        own = await traced(task_id, memory)
        commit = await task_ended(task_id, memory) if task_id.startswith("incident-") else Commit()
        return commit.model_copy(update={"writes": (*own, *commit.writes)})

    service.on(LineageEvent)(on_event)
    service.on(RecordsChanged)(on_changed)
