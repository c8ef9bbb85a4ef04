"""A failed try that is going to be tried again: its event is sent once more, for when nothing has followed."""

from typing import Any

from counterpoint.lineage.events import EventType, RunEvent, RunRef
from counterpoint.lineage.failures import FailedRun
from counterpoint.proto.lineage import LineageEvent
from counterpoint.recall.names import Node, node_of


def once_more(event: RunEvent) -> LineageEvent:
    """The event as one that has waited, with what deciding needs of it; the rest is in the record already."""
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
        "job": _named(event.job.node),
    }
    return LineageEvent(event=raw, waited=True)


def reconsidered(failed: FailedRun, *, waited: bool = False) -> LineageEvent:
    """A failure that is to be judged anew; the record of its run has the rest."""
    raw = {
        "eventTime": failed.at.isoformat(),
        "eventType": EventType.FAIL.value,
        "run": {"runId": failed.run_id},
        "job": _named(node_of(failed.job)),
    }
    return LineageEvent(event=raw, waited=waited or failed.waited)


def _run(ref: RunRef) -> dict[str, Any]:
    return {"job": _named(ref.job), "run": {"runId": ref.run_id}}


def _named(node: Node) -> dict[str, str]:
    return {"namespace": node.namespace, "name": node.name}
