"""A desk: what a handler does with the decisions about incidents, over records in memory."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from agents.lineage_data import orders

from counterpoint.lineage.events import EventType, RunEvent
from counterpoint.lineage.failures import failure_of, flow_of, recorded_failures
from counterpoint.lineage.graph import changes, owners
from counterpoint.lineage.incidents import (
    Capped,
    Decision,
    Incident,
    Join,
    Ledger,
    Limits,
    Open,
    closed_by,
    decide,
)
from counterpoint.lineage.reading import parse
from counterpoint.lineage.records import Job, Key, Record, Run
from counterpoint.lineage.submission import observed_outcome, submission
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.tasks import SubmitTask
from counterpoint.recall.edges import Edge
from counterpoint.recall.radius import blast_radius

NOW = datetime(2026, 11, 20, 18, tzinfo=UTC)
EAGER = Limits(incidents_per_hour=20, retry_grace_s=0)
PATIENT = Limits(incidents_per_hour=20, retry_grace_s=3600)
TUESDAY, WEDNESDAY = "2_tuesday_fails", "4_wednesday_fails_again"
FETCH = "job:prod/orders_ingest.fetch_orders"


class Desk:
    """What a handler does with the decisions, over records in memory."""

    def __init__(self, limits: Limits = EAGER) -> None:
        self.limits = limits
        self.now = NOW
        self.known: dict[Key, Record] = {}
        self.incidents: dict[str, Incident] = {}
        self.ledger = Ledger()
        self.decisions: list[Decision] = []
        self.tasks: list[SubmitTask] = []
        self.outcomes: list[ReportOutcome] = []

    def take(self, raws: Iterable[object], *, waited: bool = False) -> "Desk":
        for raw in raws:
            event = parse(raw)
            assert isinstance(event, RunEvent)
            self.known |= changes(event, self.known)
            run = self.run(event.run_id)
            if event.type is EventType.FAIL:
                self._failed(event, run, waited)
            elif event.type is EventType.COMPLETE:
                for incident in closed_by(run, list(self.incidents.values())):
                    self.incidents[incident.incident_id] = incident
                    self.outcomes.append(observed_outcome(incident))
        return self

    def run(self, run_id: str) -> Run:
        run = self.known["runs", run_id]
        assert isinstance(run, Run)
        return run

    def _failed(self, event: RunEvent, run: Run, waited: bool) -> None:
        failure = failure_of(event, run)
        runs = [record for record in self.known.values() if isinstance(record, Run)]
        job = self.known["jobs", event.job.node.id]
        assert isinstance(job, Job)
        decision = decide(
            failure,
            list(self.incidents.values()),
            self.ledger,
            self.limits,
            project="default",
            now=self.now,
            tries=recorded_failures(tuple(other for other in runs if flow_of(other) == failure.run.flow)),
            successes=[self.run(job.last_success.run_id)] if job.last_success else [],
            waited=waited,
        )
        self.decisions.append(decision)
        if isinstance(decision, Open | Join | Capped):
            self.incidents[decision.incident.incident_id] = decision.incident
        if isinstance(decision, Open | Capped):
            self.ledger = decision.ledger
        if isinstance(decision, Open):
            edges = [record for record in self.known.values() if isinstance(record, Edge)]
            radius = blast_radius(event.job.node, edges, owners(self.known.values()))
            stack = event.error.stack_trace if event.error else None
            self.tasks.append(submission(decision.incident, radius, self.ledger, stack_trace=stack))

    @property
    def only(self) -> Incident:
        (incident,) = self.incidents.values()
        return incident


def fails(day: str) -> list[dict[str, Any]]:
    return [raw for raw in orders(day) if raw["eventType"] == "FAIL"]


def made(
    kind: str,
    second: float,
    *,
    job: str = "a",
    run_id: str = "r-1",
    error: str | None = None,
    nominal: str | None = None,
    parent: tuple[str, str] | None = None,
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
    return {
        "eventTime": (NOW + timedelta(seconds=second)).isoformat(),
        "eventType": kind,
        "run": {"runId": run_id, "facets": facets},
        "job": {"namespace": "ns", "name": job},
    }
