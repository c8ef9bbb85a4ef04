"""Handlers of the lineage service."""

from counterpoint.bus import Service
from counterpoint.client import Memory
from counterpoint.lineage.event_commit import commit_for_event
from counterpoint.lineage.incidents.incident import IncidentLimits
from counterpoint.lineage.incidents.link_commit import changed_links, commit_for_links
from counterpoint.lineage.incidents.run_completion import commit_for_task_end
from counterpoint.lineage.openlineage.parser import parse_event
from counterpoint.lineage.project_locks import ProjectLocks
from counterpoint.lineage.self_lineage import task_lineage
from counterpoint.proto.lineage import LineageEvent
from counterpoint.proto.memory import Commit, RecordsChanged


def register(service: Service, limits: IncidentLimits, locks: ProjectLocks | None = None) -> None:
    """Register the handlers; with `locks` decisions of one project run one at a time."""

    async def on_event(message: LineageEvent, memory: Memory) -> Commit:
        event = await memory.redact_names(parse_event(message.event))
        if locks is None:
            return await commit_for_event(event, memory, limits, waited=message.waited)
        return await locks.commit_for(event, memory, limits, waited=message.waited)

    async def on_changed(message: RecordsChanged, memory: Memory) -> Commit:
        if message.service == "router":
            links = changed_links(message)
            return await commit_for_links(links, memory) if links else Commit()
        task_id = message.task_id
        if not message.ended or task_id is None:
            return Commit()
        writes = await task_lineage(task_id, memory)
        commit = await commit_for_task_end(task_id, memory) if task_id.startswith("incident-") else Commit()
        return commit.model_copy(update={"writes": (*writes, *commit.writes)})

    service.on(LineageEvent)(on_event)
    service.on(RecordsChanged)(on_changed)
