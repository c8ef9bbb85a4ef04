"""The incident context: records that an event may concern, read before the decision."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from counterpoint.client import readable, record, records
from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import node_of
from counterpoint.graph.neighbours import jobs_above, jobs_below
from counterpoint.graph.walks import LineageGraph
from counterpoint.lineage.incidents.failure_pool import close_with_task
from counterpoint.lineage.incidents.failures import FailedRun, is_statement
from counterpoint.lineage.incidents.grouping import IsDownstream
from counterpoint.lineage.incidents.history import add_history
from counterpoint.lineage.incidents.incident import (
    LEDGER_ID,
    IncidentEnding,
    IncidentLedger,
    IncidentLimits,
    IncidentRecord,
    IncidentSpan,
    IncidentState,
)
from counterpoint.lineage.incidents.joins import joined_ids
from counterpoint.lineage.incidents.matching import IncidentChanges, IncidentSnapshot, incident_id_of, match_incidents
from counterpoint.lineage.query_batcher import QueryBatcher
from counterpoint.lineage.records import RunRecord
from counterpoint.proto.incident_settings import STORE as SETTINGS
from counterpoint.proto.incident_settings import IncidentSettings
from counterpoint.proto.memory import EdgeWalk, Get, Item, List, MemoryQuery, QueryResult
from counterpoint.proto.tasks import ENDED, Task

STORE = "incidents"
RUNS_LIMIT = 50
SETTINGS_LIMIT = 200
_BATCH = 100


class IncidentContext:
    """Records read for one decision: incidents, ledger and settings, and which jobs are downstream of which.

    `items` are the versions that the incidents were read at. `late` are failures that became known after the task of
    their incident had ended.
    """

    def __init__(self, batcher: QueryBatcher, graph: LineageGraph) -> None:
        self.batcher = batcher
        self.graph = graph
        self.ledger = IncidentLedger()
        self.ledger_item: Item | None = None
        self.items: dict[str, Item] = {}
        self.incidents: dict[str, IncidentRecord] = {}
        self.late: list[FailedRun] = []
        self.settings: tuple[IncidentSettings, ...] = ()
        self._by_job: dict[str, QueryResult] = {}
        self._downstream: set[tuple[str, str]] = set()
        self._related_jobs: set[str] = set()

    @property
    def snapshot(self) -> IncidentSnapshot:
        """The incidents and the ledger as values."""
        return IncidentSnapshot(incidents=self.incidents, ledger=self.ledger)

    @property
    def is_downstream(self) -> IsDownstream:
        """Whether the second job is downstream of the first, as far as edges have been read."""
        return lambda above, job: (above, job) in self._downstream

    def open(self, ledger: QueryResult, settings: QueryResult, job: str, incidents: QueryResult) -> None:
        """Add the ledger, the settings and the incidents of a job from answers."""
        self.settings = tuple(records(settings.items, IncidentSettings))
        self.set_ledger(ledger)
        self._by_job[job] = incidents
        self.add(incidents.items)

    def has_listed(self, job: str) -> bool:
        """Whether the incidents of a job have been listed."""
        return job in self._by_job

    async def with_history(self, incident: IncidentRecord, changed: Mapping[str, IncidentRecord]) -> IncidentRecord:
        """Return the incident with the earlier incidents of its job; `changed` replace records of the same id.

        Raises `Transient` or `Denied`.
        """
        if incident.job not in self._by_job:
            (self._by_job[incident.job],) = await self.batcher.query(_incidents_of(incident.job))
        found = self._by_job[incident.job]
        listed = {
            item.id: each for item, each in readable((i for i in found.items if i.id not in self.items), IncidentRecord)
        }
        candidates = {**listed, **self.incidents, **changed}
        return add_history(incident, candidates.values(), cut=found.next_cursor is not None)

    def set_ledger(self, found: QueryResult) -> None:
        """Set the ledger from an answer."""
        for item in found.items:
            self.ledger, self.ledger_item = record(item, IncidentLedger), item

    def add(self, items: Iterable[Item]) -> None:
        """Add the incidents among items, unless they were read before."""
        fresh = {item.id: item for item in items if item.id != LEDGER_ID and item.id not in self.items}
        for item, incident in readable(fresh.values(), IncidentRecord):
            self.items[item.id] = item
            self.incidents[item.id] = incident
            if incident.ending is not IncidentEnding.MERGED:
                follow = {failed.job for failed in incident.affected}
                self._downstream |= {(above.job, job) for above in incident.roots for job in follow}

    async def read(self, incident_ids: Iterable[str]) -> None:
        """Read incidents, the incidents they were merged into, and those that people joined them with.

        Raises `Transient` or `Denied`.
        """
        ahead = {incident_id for incident_id in incident_ids if incident_id not in self.items}
        while ahead:
            batch_ids = sorted(ahead)
            for at in range(0, len(batch_ids), _BATCH):
                batch = batch_ids[at : at + _BATCH]
                found = await self.batcher.query(*(Get(store=STORE, id=incident_id) for incident_id in batch))
                self.add(item for answer in found for item in answer.items)
            read = [incident for each in batch_ids if (incident := self.incidents.get(each))]
            ahead = {i.closed_by for i in read if i.ending is IncidentEnding.MERGED and i.closed_by is not None}
            ahead = (ahead | joined_ids(read)) - self.items.keys() - set(batch_ids)

    async def read_joined(self) -> None:
        """Read the incidents that people joined with those read so far. Raises `Transient` or `Denied`."""
        await self.read(joined_ids(self.incidents.values()))

    async def close_ended(self) -> None:
        """Close the incidents whose task has ended, and collect the failures that became known later.

        Raises `Transient` or `Denied`.
        """
        open_ids = sorted(i.incident_id for i in self.incidents.values() if i.state is IncidentState.OPEN)
        for at in range(0, len(open_ids), _BATCH):
            batch = open_ids[at : at + _BATCH]
            found = await self.batcher.query(*(Get(store="tasks", id=task_id) for task_id in batch))
            for answer in found:
                for task in records(answer.items, Task):
                    self._end(task)

    def _end(self, task: Task) -> None:
        if task.state in ENDED and task.ended_at is not None:
            closed, late = close_with_task(self.incidents[task.task_id], task.ended_at)
            self.incidents[task.task_id] = closed
            self.late += late

    async def match(self, fresh: Sequence[FailedRun], limits: IncidentLimits) -> IncidentChanges:
        """Return the changes that `fresh` failures, new or changed, make to incidents.

        Raises `Transient` or `Denied`.
        """
        memory, limits = self.batcher.memory, limits.under(self.settings)
        await self.read_joined()
        while True:
            found = match_incidents(
                self.snapshot, fresh, self.is_downstream, limits, project=memory.project, now=memory.now
            )
            new = {each.incident_id: each for each in found.changed if each.incident_id not in self.items}
            await self.read(new)
            unrelated = [
                each.origin for each in new.values() if each.origin.job not in self._related_jobs and each.active
            ]
            for origin in unrelated:
                await self.relate(origin)
            if not unrelated and not new.keys() & self.items.keys():
                return found

    async def relate(self, failed: FailedRun, incident_ids: Collection[str] = ()) -> None:
        """Read these incidents and those upstream and downstream of a failed job, and how their jobs are related.

        Raises `Transient` or `Denied`.
        """
        self._related_jobs.add(failed.job)
        spans = self.ledger.around(failed)
        related = await self._near(failed, spans) if spans else frozenset[str]()
        await self.read({span.incident_id for span in spans if span.job in related}.union(incident_ids))
        if not spans and not any(incident.affected for incident in self.incidents.values()):
            return
        jobs = {each.job: each.within for i in self.incidents.values() for each in i.members.values()}
        await self._walk(failed)
        self._downstream |= {(job, failed.job) for job in jobs_above(self.graph, failed.job, jobs)}
        below = jobs_below(self.graph, node_of(failed.job), failed.within)
        self._downstream |= {(failed.job, job) for job in jobs.keys() & below - {failed.job}}

    async def _near(self, failed: FailedRun, spans: Sequence[IncidentSpan]) -> frozenset[str]:
        await self._walk(failed)
        above = jobs_above(self.graph, failed.job, {span.job: span.within for span in spans})
        return above | jobs_below(self.graph, node_of(failed.job), failed.within) | {failed.job}

    async def _walk(self, failed: FailedRun) -> None:
        await self.graph.read(up=[failed.job], down=[failed.job, *failed.within], strict=False)

    async def relate_affected(self) -> None:
        """Read which jobs of the affected failures are downstream of each other.

        Raises `Transient` or `Denied`.
        """
        jobs = {each.job: each.within for i in self.incidents.values() for each in i.affected}
        if len(jobs) < 2:
            return
        await self.graph.read(up=jobs, strict=False)
        self._downstream |= {(other, job) for job in jobs for other in jobs_above(self.graph, job, jobs)}


def context_queries(
    failed: FailedRun, project: str, graph: LineageGraph
) -> tuple[list[MemoryQuery], list[MemoryQuery], list[EdgeWalk]]:
    """Return the queries around a failure: of its job, of its flow, and the edge walks up and down."""
    links = sorted(failed.links)
    alike = {"job": failed.job, "state": "COMPLETE"}
    of_job: list[MemoryQuery] = [
        Get(store=STORE, id=LEDGER_ID),
        List(store=SETTINGS, limit=SETTINGS_LIMIT),
        _incidents_of(failed.job),
        Get(store=STORE, id=incident_id_of(project, failed)),
        List(store="runs", where=alike, limit=RUNS_LIMIT),
        *(
            List(store="runs", where={**alike, "parent_run_id": run}, limit=RUNS_LIMIT)
            for run in links
            if run != failed.run_id
        ),
    ]
    of_flow: list[MemoryQuery] = [
        *(List(store="runs", where={"parent_run_id": run, "ended_as": "FAIL"}, limit=RUNS_LIMIT) for run in links),
        *(List(store="runs", where={"root_run_id": run, "ended_as": "FAIL"}, limit=RUNS_LIMIT) for run in links),
        *(Get(store="runs", id=run) for run in links),
    ]
    down = graph.walks("down", [failed.job, *failed.within])
    return of_job, of_flow, [*graph.walks("up", [failed.job]), *down]


async def failure_context(
    batcher: QueryBatcher, failed: FailedRun, extra_edges: Sequence[LineageEdge]
) -> tuple[IncidentContext, tuple[RunRecord, ...], bool]:
    """Read the context of a failure, the completed runs that may resolve it, and whether its job has parts.

    `extra_edges` are not in memory yet.

    Raises `Transient` or `Denied`.
    """
    context = IncidentContext(batcher, graph=LineageGraph(batcher, extra_edges))
    of_job, of_flow, walks = context_queries(failed, batcher.memory.project, context.graph)
    found = await batcher.query(*of_job, *of_flow, *walks)
    ledger, settings, incidents, _, *successful = found[: len(of_job)]
    context.open(ledger, settings, failed.job, incidents)
    for walk, answer in zip(walks, found[-len(walks) :], strict=True):
        context.graph.add(walk, answer)
    successes = [run for answer in successful for run in records(answer.items, RunRecord)]
    flow = [run for answer in found[len(of_job) :][: len(of_flow)] for run in records(answer.items, RunRecord)]
    await context.relate(failed, {run.incident for run in flow if run.incident})
    parts = [edge for edge in context.graph.edges if edge.kind is EdgeKind.PARENT and edge.source == failed.job]
    has_parts = any(not is_statement(edge.target, edge.source) for edge in parts)
    return context, tuple({run.run_id: run for run in successes}.values()), has_parts


async def completion_context(batcher: QueryBatcher, job: str, own: RunRecord | None) -> IncidentContext:
    """Read the context of the failures of a job that has completed; `own` is the completed run.

    Raises `Transient` or `Denied`.
    """
    ledger, settings, incidents, failed = await batcher.query(
        Get(store=STORE, id=LEDGER_ID),
        List(store=SETTINGS, limit=SETTINGS_LIMIT),
        _incidents_of(job),
        List(store="runs", where={"job": job, "ended_as": "FAIL"}, limit=RUNS_LIMIT),
    )
    context = IncidentContext(batcher, graph=LineageGraph(batcher))
    context.open(ledger, settings, job, incidents)
    runs: Sequence[RunRecord] = records(failed.items, RunRecord)
    runs = [*runs, own] if own else runs
    await context.read(sorted({run.incident for run in runs if run.incident}))
    await context.relate_affected()
    return context


def _incidents_of(job: str) -> List:
    return List(store=STORE, where={"job": job}, limit=RUNS_LIMIT)
