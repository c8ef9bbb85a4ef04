"""Messages about an incident's task: submission, amendment, cancellation and observed outcome."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from counterpoint.graph.names import node_of
from counterpoint.graph.radius import BlastRadius
from counterpoint.guard.judge import redacted_body
from counterpoint.guard.policy import policy
from counterpoint.lineage.incidents.failures import NO_MESSAGE
from counterpoint.lineage.incidents.incident import IncidentLedger, IncidentRecord, unresolved_failures
from counterpoint.lineage.incidents.titles import title_of
from counterpoint.lineage.records import RunRecord
from counterpoint.lineage.sizes import fitting
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.interventions import AmendTask, CancelTask
from counterpoint.proto.tasks import JobRef, SubmitTask, Target

AGENT = "lineage"
_DESCRIPTION_LIMIT_CHARS = 16_000
_ROWS_LIMIT, _ROWS_BYTES = 100, 50_000
"""Maximum number and size of the rows of a list."""
_INTEGRATION_HINTS = {
    "DBT": "dbt reports errors only with structured logs: run it as `dbt-ol --consume-structured-logs`"
}
"""Hints by integration, for errors that are not in its events by default."""


def incident_task(
    incident: IncidentRecord,
    radius: BlastRadius,
    ledger: IncidentLedger,
    *,
    run: RunRecord | None = None,
    code: dict[str, str] | None = None,
    changed: Sequence[dict[str, str]] = (),
) -> SubmitTask:
    """Build the task of an incident. Its id is the id of the incident, so a repeated submission has no effect.

    `run` is the run of the origin. The fields of `context` are in docs/incidents.md. Secrets in names and URLs are
    redacted here; secrets in errors are redacted by the parser.
    """
    origin, job = incident.origin, node_of(incident.job)
    error = (run.error_message if run else None) or NO_MESSAGE
    downstream = _rows(row.model_dump(exclude_none=True) for row in radius.downstream)
    context: dict[str, Any] = {
        "incident_id": incident.incident_id,
        "error_signature": incident.signature,
        "nominal_time": origin.nominal_start.isoformat() if origin.nominal_start else None,
        "retries": origin.retries,
        "log_url": origin.log_url,
        "owner": radius.owner,
        "part_of": [str(node_of(parent)) for parent in origin.within],
        "dag_run_id": origin.dag_run_id,
        **live_facts(incident),
        "previous_incident": incident.previous,
        "changed": list(changed),
        "downstream": downstream,
        "downstream_truncated": radius.truncated or len(radius.downstream) > len(downstream),
        "stack_trace": run.stack_trace if run else None,
        "hint": _INTEGRATION_HINTS.get((run.integration or "").upper()) if run and error == NO_MESSAGE else None,
        "code": code,
        "capped_last_hour": len(ledger.capped),
    }
    texts = {
        "title": title_of(job, "" if error == NO_MESSAGE else error, run.integration if run else None),
        "description": _description(incident),
        "context": {key: value for key, value in context.items() if value not in (None, [], {})},
    }
    rules = policy()
    redacted = redacted_body(rules, texts, texts, rules.message_level(0))
    return SubmitTask(
        kind="troubleshoot",
        task_id=incident.incident_id,
        title=redacted["title"],
        description=redacted["description"][:_DESCRIPTION_LIMIT_CHARS],
        error_message=error,
        target=Target(job=JobRef(namespace=job.namespace, name=job.name), run_id=origin.run_id),
        context=redacted["context"],
        source_ref=f"openlineage:{job}#{origin.run_id}",
    )


def live_facts(
    incident: IncidentRecord, parts: Sequence[IncidentRecord] = (), parent: str | None = None
) -> dict[str, Any]:
    """Return the facts that change while the incident is active: its tries, its repetitions and the failures that
    follow from it.

    `parts` are the incidents joined to it, whose counts are added; `parent` is the id of the incident it is part of.
    """
    earlier, incidents = incident.earlier, (incident, *parts)
    starts = [*([earlier.first_at] if earlier else []), *(each.first_at for each in incidents)]
    facts: dict[str, Any] = {
        "tries": incident.tries,
        "failed_at": incident.last_at.isoformat(),
        "repeats": {
            "count": sum(each.count for each in incidents) + (earlier.count if earlier else 0),
            "first_at": min(starts).isoformat(),
            "last_at": max(each.last_at for each in incidents).isoformat(),
        },
        "affected": _rows(row for each in incidents for row in _followers(each)),
        "affected_count": sum(each.affected_count for each in incidents),
    }
    facts = {name: value for name, value in facts.items() if value or incident.live}
    join_facts = {"merged": _rows(map(_part, parts)), "merged_into": parent or ""}
    return facts | {name: value for name, value in join_facts.items() if value or name in incident.live}


def _rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return list(fitting(islice(rows, _ROWS_LIMIT), _ROWS_BYTES))


def _followers(incident: IncidentRecord) -> list[dict[str, str]]:
    failures = ((failed, node_of(failed.job)) for failed in unresolved_failures(incident.affected))
    return [{"namespace": j.namespace, "name": j.name, "failed_at": f.at.isoformat()} for f, j in failures]


def _part(incident: IncidentRecord) -> dict[str, Any]:
    job = node_of(incident.job)
    row = {"task_id": incident.incident_id, "namespace": job.namespace, "name": job.name, "count": incident.count}
    return row | {"last_at": incident.last_at.isoformat(), "over": not incident.active}


def amendment(task: SubmitTask, incident: IncidentRecord) -> AmendTask:
    """Build the amendment of a task whose incident has a new origin."""
    return AmendTask(
        task_id=incident.incident_id,
        by=AGENT,
        by_kind="system",
        reason=f"{node_of(incident.job)} is the root cause",
        title=task.title,
        description=task.description,
        error_message=task.error_message,
        target=task.target,
        context=task.context,
        source_ref=task.source_ref,
    )


def cancellation(incident: IncidentRecord, into: IncidentRecord | None) -> CancelTask:
    """Build the cancellation of a task whose failures belong to another incident."""
    cause = f"{node_of(into.job)} ({into.incident_id})" if into else "another failure"
    reason = f"{node_of(incident.job)} is the same failure as {cause}"
    if into is not None and into.job != incident.job:
        reason = f"the failure of {node_of(incident.job)} is downstream of {cause}"
    return CancelTask(task_id=incident.incident_id, by=AGENT, by_kind="system", reason=reason)


def observed_outcome(incident: IncidentRecord, changed: Sequence[str] = ()) -> ReportOutcome:
    """Build the outcome of a recovered incident. `changed` are the differences from the failed run."""
    when = f" at {incident.closed_at:%Y-%m-%d %H:%M:%S} UTC" if incident.closed_at else ""
    note = f"Run {incident.closed_by} of {node_of(incident.job)} completed{when} after the failure."
    rules = policy()
    texts = {"changed": list(changed)}
    redacted = redacted_body(rules, texts, texts, rules.message_level(0))
    return ReportOutcome(
        task_id=incident.incident_id, outcome="succeeded", note=note, changed=tuple(redacted["changed"])
    )


def _description(incident: IncidentRecord) -> str:
    origin = incident.origin
    tries = f" after {incident.tries} tries" if incident.tries > 1 else ""
    when = f" for {origin.nominal_start:%Y-%m-%d %H:%M} UTC" if origin.nominal_start else ""
    return f"{node_of(incident.job)} failed{tries}{when}."
