"""What the lineage service does with each message it is handed."""

from counterpoint.bus import Service
from counterpoint.lineage.incidents import Limits
from counterpoint.lineage.intake import take
from counterpoint.lineage.own import Tracer
from counterpoint.lineage.reading import parse
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.memory import Commit, RecordsChanged
from counterpoint.recall import Memory


def register(service: Service, limits: Limits) -> None:
    """Have the service handle all that lineage is handed."""

    tracer = Tracer()

    async def on_event(message: LineageEvent, memory: Memory) -> Commit:
        return await take(parse(message.event), memory, limits, waited=message.waited)

    async def on_changed(message: RecordsChanged, memory: Memory) -> Commit:
        return await tracer.trace(message, memory)

    service.on(LineageEvent)(on_event)
    service.on(RecordsChanged)(on_changed)
