"""Simulation of the effects of events on incidents: the pure functions over records in memory."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from agents.lineage_data import orders

from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import job, node_of
from counterpoint.graph.radius import blast_radius
from counterpoint.lineage.graph_records import changed_records, owners_by_ref
from counterpoint.lineage.incidents.failure_pool import close_with_task
from counterpoint.lineage.incidents.failures import NO_MESSAGE, FailedRun, failure_report
from counterpoint.lineage.incidents.history import add_history
from counterpoint.lineage.incidents.incident import (
    IncidentEnding,
    IncidentLedger,
    IncidentLimits,
    IncidentRecord,
    IncidentState,
)
from counterpoint.lineage.incidents.matching import IncidentChanges, IncidentSnapshot, match_incidents
from counterpoint.lineage.incidents.task_messages import amendment, cancellation, incident_task, observed_outcome
from counterpoint.lineage.openlineage.events import EventType, RunEvent
from counterpoint.lineage.openlineage.parser import parse_event
from counterpoint.lineage.records import GraphRecord, RecordKey, RunRecord
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.interventions import AmendTask, CancelTask
from counterpoint.proto.tasks import SubmitTask

NOW = datetime(2026, 11, 20, 18, tzinfo=UTC)
EAGER = IncidentLimits(incidents_per_hour=20, retry_grace_s=0)
PATIENT = IncidentLimits(incidents_per_hour=20, retry_grace_s=3600)
TUESDAY, WEDNESDAY = "2_tuesday_fails", "4_wednesday_fails_again"
FETCH = "job:prod/orders_ingest.fetch_orders"


class IncidentSimulation:
    """Incidents of one project. With a grace of 0 a failure counts as waited immediately."""

    def __init__(self, limits: IncidentLimits = EAGER) -> None:
        self.limits = limits
        self.now = NOW
        self.records: dict[RecordKey, GraphRecord] = {}
        self.incidents: dict[str, IncidentRecord] = {}
        self.ledger = IncidentLedger()
        self.tasks: list[SubmitTask] = []
        self.amendments: list[AmendTask] = []
        self.cancellations: list[CancelTask] = []
        self.outcomes: list[ReportOutcome] = []
        self._down: dict[str, frozenset[str]] = {}

    def take(self, raws: Iterable[object], *, waited: bool = False) -> "IncidentSimulation":
        for raw in raws:
            event = parse_event(raw)
            assert isinstance(event, RunEvent)
            changed = changed_records(event, self.records)
            self.records |= changed
            has_new_edges = any(store == "edges" for store, _ in changed)
            if has_new_edges:
                self._down.clear()
            run = self.run(event.run_id)
            if event.type is EventType.FAIL:
                self.settle([self._failed(event, run, waited or not self.limits.retry_grace_s)])
            elif event.type is EventType.COMPLETE:
                records_kept = [i for i in self.incidents.values() if i.ending is not IncidentEnding.MERGED]
                members = [one for i in records_kept for one in i.members.values() if one.job == run.job]
                self.settle([one.resolved_by([run]) for one in members])
            elif has_new_edges:
                self.settle([])
        return self

    def end_grace(self) -> "IncidentSimulation":
        """End the grace period of all waiting failures."""
        for incident in list(self.incidents.values()):
            if incident.state is IncidentState.WAITING:
                self.settle([one.model_copy(update={"waited": True}) for one in incident.failures])
        return self

    def end_task(self, task_id: str, at: datetime) -> "IncidentSimulation":
        """End the task of an incident."""
        self.incidents[task_id], late = close_with_task(self.incidents[task_id], at)
        self.settle(late)
        return self

    def run(self, run_id: str) -> RunRecord:
        run = self.records["runs", run_id]
        assert isinstance(run, RunRecord)
        return run

    def settle(self, fresh: Iterable[FailedRun]) -> None:
        snapshot = IncidentSnapshot(incidents=dict(self.incidents), ledger=self.ledger)
        changes = match_incidents(snapshot, fresh, self._below, self.limits, project="default", now=self.now)
        self._apply(changes)

    def _failed(self, event: RunEvent, run: RunRecord, waited: bool) -> FailedRun:
        failed = failure_report(event, run).run
        runs = [record for record in self.records.values() if isinstance(record, RunRecord)]
        edges = [record for record in self.records.values() if isinstance(record, LineageEdge)]
        parts = any(edge.kind is EdgeKind.PARENT and edge.source == failed.job for edge in edges)
        return failed.model_copy(
            update={"known_at": self.now, "waited": waited, "whole": failed.whole or parts}
        ).resolved_by(runs)

    def _below(self, above: str, other: str) -> bool:
        if above not in self._down:
            edges = [record for record in self.records.values() if isinstance(record, LineageEdge)]
            rows = blast_radius(node_of(above), edges, {}).downstream
            self._down[above] = frozenset(job(row.namespace, row.name).ref for row in rows if row.kind == "job")
        return other in self._down[above]

    def _apply(self, changes: IncidentChanges) -> None:
        with_task_message = {incident.incident_id for incident in (*changes.opened, *changes.repointed)}
        for incident in changes.changed:
            error = self.run(incident.origin.run_id).error_message or NO_MESSAGE
            records = {"error_message": error} if incident.incident_id in with_task_message else {}
            self.incidents[incident.incident_id] = incident.model_copy(update=records)
        self.ledger = changes.ledger
        for incident in changes.opened:
            self.tasks.append(self._submission(incident))
        for incident in changes.repointed:
            self.amendments.append(amendment(self._submission(incident), incident))
        for incident in changes.merged:
            into = self.incidents.get(incident.closed_by or "")
            self.cancellations.append(cancellation(incident, into))
        self.outcomes += [observed_outcome(incident) for incident in changes.recovered]

    def _submission(self, incident: IncidentRecord) -> SubmitTask:
        edges = [record for record in self.records.values() if isinstance(record, LineageEdge)]
        radius = blast_radius(node_of(incident.job), edges, owners_by_ref(self.records.values()))
        incident = add_history(incident, self.incidents.values())
        return incident_task(incident, radius, self.ledger, run=self.run(incident.origin.run_id))

    @property
    def active(self) -> list[IncidentRecord]:
        return [incident for incident in self.incidents.values() if incident.active]

    @property
    def only(self) -> IncidentRecord:
        (incident,) = self.incidents.values()
        return incident


def fails(day: str) -> list[dict[str, Any]]:
    return [raw for raw in orders(day) if raw["eventType"] == "FAIL"]


def run_event(
    kind: str,
    second: float,
    *,
    job: str = "a",
    run_id: str = "r-1",
    error: str | None = None,
    nominal: str | None = None,
    parent: tuple[str, str] | None = None,
    reads: Iterable[str] = (),
    writes: Iterable[str] = (),
    job_type: str | None = None,
    **airflow: Any,
) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if error is not None:
        facets["errorMessage"] = {"message": error}
    if nominal is not None:
        facets["nominalTime"] = {"nominalStartTime": nominal}
    if parent is not None:
        facets["parent"] = {"job": {"namespace": "ns", "name": parent[0]}, "run": {"runId": parent[1]}}
    if airflow:
        facets["airflow"] = airflow
    named: dict[str, Any] = {"namespace": "ns", "name": job}
    if job_type is not None:
        named["facets"] = {"jobType": {"jobType": job_type, "integration": "AIRFLOW", "processingType": "BATCH"}}
    return {
        "eventTime": (NOW + timedelta(seconds=second)).isoformat(),
        "eventType": kind,
        "run": {"runId": run_id, "facets": facets},
        "job": named,
        "inputs": [{"namespace": "db", "name": name} for name in reads],
        "outputs": [{"namespace": "db", "name": name} for name in writes],
    }
