"""Deferred failures: the event of a failed try, sent again after its grace period."""

from typing import Any

from counterpoint.graph.names import Node, node_of
from counterpoint.lineage.incidents.failures import FailedRun
from counterpoint.lineage.openlineage.events import EventType, RunEvent, RunRef
from counterpoint.proto.lineage import LineageEvent


def deferred_event(event: RunEvent) -> LineageEvent:
    """Return the event marked as waited, with the facets that the decision needs; the record has the others."""
    airflow = event.airflow
    facets: dict[str, Any] = {
        "airflow": {
            "dag": {"dag_id": airflow.dag_id},
            "dagRun": {"run_id": airflow.dag_run_id},
            "task": {"task_id": airflow.task_id, "retries": airflow.retries},
            "taskInstance": {
                "try_number": airflow.try_number,
                "map_index": airflow.map_index,
                "log_url": airflow.log_url,
            },
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
    """Return a minimal FAIL event that rechecks a failure; the record of its run has the facets."""
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
