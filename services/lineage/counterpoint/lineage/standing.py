"""Records of the incidents that an event may concern, read before anything is decided."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from counterpoint.lineage.failures import FailedRun, is_statement
from counterpoint.lineage.grouping import Below
from counterpoint.lineage.history import with_history
from counterpoint.lineage.incidents import LEDGER_ID, Ending, Incident, Ledger, Limits, Span, State
from counterpoint.lineage.joining import joined
from counterpoint.lineage.pool import end_of_task
from counterpoint.lineage.reads import Reads
from counterpoint.lineage.records import Run
from counterpoint.lineage.settling import Book, Settlement, incident_id_of, settle
from counterpoint.proto.incident_settings import STORE as SETTINGS
from counterpoint.proto.incident_settings import IncidentSettings
from counterpoint.proto.memory import Found, Get, Item, List, MemoryQuery, Walk
from counterpoint.proto.tasks import ENDED, Task
from counterpoint.recall import readable, record, records
from counterpoint.recall.edges import Edge, EdgeKind
from counterpoint.recall.names import node_of
from counterpoint.recall.neighbours import jobs_above, jobs_below
from counterpoint.recall.walks import Graph

STORE = "incidents"
RUNS_LIMIT = 50
SETTINGS_LIMIT = 200
_BATCH = 100


@dataclass(slots=True)
class Desk:
    """The incidents read so far, with the items they were read from, and which jobs are downstream of which."""

    reads: Reads
    graph: Graph
    ledger: Ledger = field(default_factory=Ledger)
    ledger_item: Item | None = None
    items: dict[str, Item] = field(default_factory=dict)
    incidents: dict[str, Incident] = field(default_factory=dict)
    late: list[FailedRun] = field(default_factory=list)
    settings: tuple[IncidentSettings, ...] = ()
    _listed: dict[str, Found] = field(default_factory=dict)
    _pairs: set[tuple[str, str]] = field(default_factory=set)
    _related: set[str] = field(default_factory=set)

    @property
    def book(self) -> Book:
        """The incidents and the ledger as values."""
        return Book(incidents=self.incidents, ledger=self.ledger)

    @property
    def below(self) -> Below:
        """Whether the second job is downstream of the first, as far as was read."""
        return lambda above, job: (above, job) in self._pairs

    def open(self, ledger: Found, settings: Found, job: str, incidents: Found) -> None:
        """Keep the ledger, the settings, and the incidents of a job."""
        self.settings = tuple(records(settings.items, IncidentSettings))
        self.take_ledger(ledger)
        self._listed[job] = incidents
        self.take(incidents.items)

    def has_listed(self, job: str) -> bool:
        """Whether the incidents of a job were asked for."""
        return job in self._listed

    async def remembered(self, incident: Incident, changed: Mapping[str, Incident]) -> Incident:
        """The incident with what came before it; `changed` are incidents as they become.

        Raises `Transient` or `Denied`.
        """
        if incident.job not in self._listed:
            (self._listed[incident.job],) = await self.reads.query(_incidents_of(incident.job))
        found = self._listed[incident.job]
        listed = {item.id: one for item, one in readable((i for i in found.items if i.id not in self.items), Incident)}
        known = {**listed, **self.incidents, **changed}
        return with_history(incident, known.values(), cut=found.next_cursor is not None)

    def take_ledger(self, found: Found) -> None:
        """Keep the ledger of an answer."""
        for item in found.items:
            self.ledger, self.ledger_item = record(item, Ledger), item

    def take(self, items: Iterable[Item]) -> None:
        """Keep the incidents among items."""
        fresh = {item.id: item for item in items if item.id != LEDGER_ID and item.id not in self.items}
        for item, incident in readable(fresh.values(), Incident):
            self.items[item.id] = item
            self.incidents[item.id] = incident
            if incident.ending is not Ending.MERGED:
                follow = {failed.job for failed in incident.affected}
                self._pairs |= {(above.job, job) for above in incident.roots for job in follow}

    async def read(self, incident_ids: Iterable[str]) -> None:
        """Read incidents, those that they were merged into, and those that people joined them with.

        Raises `Transient` or `Denied`.
        """
        ahead = {incident_id for incident_id in incident_ids if incident_id not in self.items}
        while ahead:
            wanted = sorted(ahead)
            for at in range(0, len(wanted), _BATCH):
                batch = wanted[at : at + _BATCH]
                found = await self.reads.query(*(Get(store=STORE, id=incident_id) for incident_id in batch))
                self.take(item for answer in found for item in answer.items)
            read = [incident for each in wanted if (incident := self.incidents.get(each))]
            ahead = {i.closed_by for i in read if i.ending is Ending.MERGED and i.closed_by is not None}
            ahead = (ahead | joined(read)) - self.items.keys() - set(wanted)

    async def read_joined(self) -> None:
        """Read the incidents that people joined with those at hand. Raises `Transient` or `Denied`."""
        await self.read(joined(self.incidents.values()))

    async def close_ended(self) -> None:
        """Close the incidents whose task has ended, and note what became known of them after that.

        Raises `Transient` or `Denied`.
        """
        asked = sorted(i.incident_id for i in self.incidents.values() if i.state is State.OPEN)
        for at in range(0, len(asked), _BATCH):
            batch = asked[at : at + _BATCH]
            found = await self.reads.query(*(Get(store="tasks", id=task_id) for task_id in batch))
            for answer in found:
                for task in records(answer.items, Task):
                    self._end(task)

    def _end(self, task: Task) -> None:
        if task.state in ENDED and task.ended_at is not None:
            closed, late = end_of_task(self.incidents[task.task_id], task.ended_at)
            self.incidents[task.task_id] = closed
            self.late += late

    async def settled(self, fresh: Sequence[FailedRun], limits: Limits) -> Settlement:
        """The records as they are with `fresh` failures. Raises `Transient` or `Denied`."""
        memory, limits = self.reads.memory, limits.under(self.settings)
        await self.read_joined()
        while True:
            found = settle(self.book, fresh, self.below, limits, project=memory.project, now=memory.now)
            begun = {one.incident_id: one for one in found.changed if one.incident_id not in self.items}
            await self.read(begun)
            unrelated = [one.origin for one in begun.values() if one.origin.job not in self._related and one.active]
            for origin in unrelated:
                await self.relate(origin)
            if not unrelated and not begun.keys() & self.items.keys():
                return found

    async def relate(self, failed: FailedRun, incident_ids: Collection[str] = ()) -> None:
        """Read these incidents, those of a failure's job, upstream and downstream of it, and which is above which.

        Raises `Transient` or `Denied`.
        """
        self._related.add(failed.job)
        spans = self.ledger.around(failed)
        near = await self._near(failed, spans) if spans else frozenset[str]()
        await self.read({span.incident_id for span in spans if span.job in near}.union(incident_ids))
        if not spans and not any(incident.affected for incident in self.incidents.values()):
            return
        jobs = {one.job: one.within for i in self.incidents.values() for one in i.members.values()}
        await self._walk(failed)
        self._pairs |= {(job, failed.job) for job in jobs_above(self.graph, failed.job, jobs)}
        below = jobs_below(self.graph, node_of(failed.job), failed.within)
        self._pairs |= {(failed.job, job) for job in jobs.keys() & below - {failed.job}}

    async def _near(self, failed: FailedRun, spans: Sequence[Span]) -> frozenset[str]:
        await self._walk(failed)
        above = jobs_above(self.graph, failed.job, {span.job: span.within for span in spans})
        return above | jobs_below(self.graph, node_of(failed.job), failed.within) | {failed.job}

    async def _walk(self, failed: FailedRun) -> None:
        await self.graph.read(up=[failed.job], down=[failed.job, *failed.within], strict=False)

    async def relate_affected(self) -> None:
        """Read how the failures that follow from others are related among themselves.

        Raises `Transient` or `Denied`.
        """
        jobs = {one.job: one.within for i in self.incidents.values() for one in i.affected}
        if len(jobs) < 2:
            return
        await self.graph.read(up=jobs, strict=False)
        self._pairs |= {(other, job) for job in jobs for other in jobs_above(self.graph, job, jobs)}


def questions(failed: FailedRun, project: str, graph: Graph) -> tuple[list[MemoryQuery], list[MemoryQuery], list[Walk]]:
    """The questions around a failure: of its job, of its flow, and of the ways up and down."""
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


async def open_desk(reads: Reads, failed: FailedRun, also: Sequence[Edge] = ()) -> tuple[Desk, tuple[Run, ...], bool]:
    """The facts around a failure: the incidents, the completed runs that may show it is over, and whether its job
    has parts. `also` are edges that memory does not hold yet.

    Raises `Transient` or `Denied`.
    """
    desk = Desk(reads, graph=Graph(reads, also))
    of_job, of_flow, walks = questions(failed, reads.memory.project, desk.graph)
    found = await reads.query(*of_job, *of_flow, *walks)
    ledger, settings, incidents, _, *successful = found[: len(of_job)]
    desk.open(ledger, settings, failed.job, incidents)
    for walk, answer in zip(walks, found[-len(walks) :], strict=True):
        desk.graph.take(walk, answer)
    successes = [run for answer in successful for run in records(answer.items, Run)]
    flow = [run for answer in found[len(of_job) :][: len(of_flow)] for run in records(answer.items, Run)]
    await desk.relate(failed, {run.incident for run in flow if run.incident})
    parts = [edge for edge in desk.graph.edges if edge.kind is EdgeKind.PARENT and edge.source == failed.job]
    has_parts = any(not is_statement(edge.target, edge.source) for edge in parts)
    return desk, tuple({run.run_id: run for run in successes}.values()), has_parts


async def desk_of(reads: Reads, job: str, own: Run | None) -> Desk:
    """What is known of the failures of a job that has completed; `own` is the run that did.

    Raises `Transient` or `Denied`.
    """
    ledger, settings, incidents, failed = await reads.query(
        Get(store=STORE, id=LEDGER_ID),
        List(store=SETTINGS, limit=SETTINGS_LIMIT),
        _incidents_of(job),
        List(store="runs", where={"job": job, "ended_as": "FAIL"}, limit=RUNS_LIMIT),
    )
    desk = Desk(reads, graph=Graph(reads))
    desk.open(ledger, settings, job, incidents)
    runs: Sequence[Run] = records(failed.items, Run)
    runs = [*runs, own] if own else runs
    await desk.read(sorted({run.incident for run in runs if run.incident}))
    await desk.relate_affected()
    return desk


def _incidents_of(job: str) -> List:
    return List(store=STORE, where={"job": job}, limit=RUNS_LIMIT)
