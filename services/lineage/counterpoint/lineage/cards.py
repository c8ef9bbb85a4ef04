"""Facts of an incident's card, read beside each other: its run and job, who is hit, and what has changed."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from counterpoint.lineage.changes import Records, changed_since
from counterpoint.lineage.differences import Difference
from counterpoint.lineage.graph import owners
from counterpoint.lineage.incidents import Incident, Ledger
from counterpoint.lineage.records import Job, Run
from counterpoint.lineage.standing import Desk
from counterpoint.lineage.submission import submission
from counterpoint.proto.memory import Get
from counterpoint.proto.tasks import SubmitTask
from counterpoint.recall import readable
from counterpoint.recall.lineage import blast_radius_of
from counterpoint.recall.names import node_of
from counterpoint.recall.radius import Radius


@dataclass(frozen=True, slots=True)
class Card:
    """Facts beside an incident: `run` is that of its origin, `changed` what differs from the last success."""

    radius: Radius
    run: Run | None
    job: Job | None
    changed: tuple[Difference, ...]

    def task(self, incident: Incident, ledger: Ledger) -> SubmitTask:
        """The task that an incident asks for."""
        code = self.job.code.model_dump(exclude_none=True) if self.job is not None and self.job.code else None
        return submission(incident, self.radius, ledger, run=self.run, code=code, changed=self.changed)


async def card_of(desk: Desk, incident: Incident, records: Records) -> Card:
    """The facts of an incident. Raises `Transient` or `Denied`."""
    radius, (run, job, changed) = await asyncio.gather(
        blast_radius_of(desk.reads, node_of(incident.job), owned=owners(records.values()), graph=desk.graph),
        changed_since(desk.reads, desk.graph, incident, records),
    )
    return Card(radius, run, job, tuple(changed))


async def known_runs(desk: Desk, wanted: Iterable[str], records: Records) -> dict[str, Run]:
    """Runs by id: those of the event as they are with it, the others as memory has them.

    Raises `Transient` or `Denied`.
    """
    ids = set(wanted)
    own = {run.run_id: run for run in records.values() if isinstance(run, Run) and run.run_id in ids}
    found = await desk.reads.query(*(Get(store="runs", id=run_id) for run_id in sorted(ids - own.keys())))
    return own | {item.id: run for answer in found for item, run in readable(answer.items, Run)}
