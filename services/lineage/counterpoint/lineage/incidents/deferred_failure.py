"""Deferred failures: the event of a failed try, sent again after its grace period."""

from typing import Any

from counterpoint.graph.names import Node, node_of
from counterpoint.lineage.incidents.failures import FailedRun
from counterpoint.lineage.openlineage.events import EventType, RunEvent, RunRef
from counterpoint.proto.lineage import LineageEvent


def deferred_event(event: RunEvent) -> LineageEvent:
    """The event marked as waited, with the facets that the decision needs; the others are in the record."""
    said = event.airflow
    facets: dict[str, Any] = {
        "airflow": {
            "dag": {"dag_id": said.dag_id},
            "dagRun": {"run_id": said.dag_run_id},
            "task": {"task_id": said.task_id, "retries": said.retries},
            "taskInstance": {"try_number": said.try_number, "map_index": said.map_index, "log_url": said.log_url},
        }
    }
    if event.error is not None:
        facets["errorMessage"] = {"message": event.error.headline, "stackTrace": event.error.stack_trace}
    if event.parent is not None:
        facets["parent"] = _run(event.parent) | ({"root": _run(event.root)} if event.root is not None else {})
    if event.nominal_start is not None:
        facets["nominalTime"] = {"nominalStartTime": event.nominal_start.isoformat()}
    raw = {
        "eventTime": event.at.isoformat(),
        "eventType": event.type.value,
        "run": {"runId": event.run_id, "facets": facets},
        "job": _job_json(event.job.node),
    }
    return LineageEvent(event=raw, waited=True)


def recheck_event(failed: FailedRun, *, waited: bool = False) -> LineageEvent:
    """A minimal FAIL event that has a failure checked again; the record of its run has the facets."""
    raw = {
        "eventTime": failed.at.isoformat(),
        "eventType": EventType.FAIL.value,
        "run": {"runId": failed.run_id},
        "job": _job_json(node_of(failed.job)),
    }
    return LineageEvent(event=raw, waited=waited or failed.waited)


def _run(ref: RunRef) -> dict[str, Any]:
    return {"job": _job_json(ref.job), "run": {"runId": ref.run_id}}


def _job_json(node: Node) -> dict[str, str]:
    return {"namespace": node.namespace, "name": node.name}
