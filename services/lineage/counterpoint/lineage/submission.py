"""Messages to others about an incident: the task, its amendment, its cancellation, and the observed outcome."""

from collections.abc import Sequence
from typing import Any

from counterpoint.guard.judge import cleaned
from counterpoint.guard.policy import policy
from counterpoint.lineage.failures import NO_MESSAGE
from counterpoint.lineage.incidents import Incident, Ledger, standing_units
from counterpoint.lineage.records import Run
from counterpoint.lineage.titles import title_of
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.interventions import AmendTask, CancelTask
from counterpoint.proto.tasks import JobRef, SubmitTask, Target
from counterpoint.recall.names import node_of
from counterpoint.recall.radius import Radius

AGENT = "lineage"
_DESCRIPTION_LIMIT_CHARS = 16_000
_ROWS_LIMIT = 100
_SILENT = {"DBT": "dbt sends errors with its structured logs alone: run it as `dbt-ol --consume-structured-logs`"}
"""By integration, the way to hear of errors that it leaves out of its events as it comes."""


def submission(
    incident: Incident,
    radius: Radius,
    ledger: Ledger,
    *,
    run: Run | None = None,
    code: dict[str, str] | None = None,
    changed: Sequence[dict[str, str]] = (),
) -> SubmitTask:
    """The task of an incident. Its id is the incident's, so that asking twice is asking once.

    `run` is that of the origin. `context` holds what a person would look up first; docs/incidents.md has its fields.
    Secrets in names and addresses are redacted; those in errors were so when they were read.
    """
    origin, job = incident.origin, node_of(incident.job)
    error = (run.error_message if run else None) or NO_MESSAGE
    context: dict[str, Any] = {
        "incident_id": incident.incident_id,
        "error_signature": incident.signature,
        "failed_at": origin.at.isoformat(),
        "nominal_time": origin.nominal_start.isoformat() if origin.nominal_start else None,
        "tries": incident.tries,
        "retries": origin.retries,
        "log_url": origin.log_url,
        "owner": radius.owner,
        "part_of": [str(node_of(whole)) for whole in origin.within],
        "dag_run_id": origin.dag_run_id,
        **live_facts(incident),
        "previous_incident": incident.previous,
        "changed": list(changed),
        "downstream": [row.model_dump(exclude_none=True) for row in radius.downstream[:_ROWS_LIMIT]],
        "downstream_truncated": radius.truncated or len(radius.downstream) > _ROWS_LIMIT,
        "stack_trace": run.stack_trace if run else None,
        "hint": _SILENT.get((run.integration or "").upper()) if run and error == NO_MESSAGE else None,
        "code": code,
        "capped_last_hour": len(ledger.capped),
    }
    texts = {
        "title": title_of(job, "" if error == NO_MESSAGE else error),
        "description": _description(incident),
        "context": {key: value for key, value in context.items() if value not in (None, [], {})},
    }
    rules = policy()
    harmless = cleaned(rules, texts, texts, rules.message_level(0))
    return SubmitTask(
        kind="troubleshoot",
        task_id=incident.incident_id,
        title=harmless["title"],
        description=harmless["description"][:_DESCRIPTION_LIMIT_CHARS],
        error_message=error,
        target=Target(job=JobRef(namespace=job.namespace, name=job.name), run_id=origin.run_id),
        context=harmless["context"],
        source_ref=f"openlineage:{job}#{origin.run_id}",
    )


def live_facts(incident: Incident, parts: Sequence[Incident] = (), whole: str | None = None) -> dict[str, Any]:
    """Facts that grow while the incident stands: how often it has come, and what follows from it.

    `parts` are the incidents that people joined to it, which count as its own; `whole` the one it is a part of.
    """
    earlier, every = incident.earlier, (incident, *parts)
    starts = [*([earlier.first_at] if earlier else []), *(one.first_at for one in every)]
    facts: dict[str, Any] = {
        "repeats": {
            "count": sum(one.count for one in every) + (earlier.count if earlier else 0),
            "first_at": min(starts).isoformat(),
            "last_at": max(one.last_at for one in every).isoformat(),
        },
        "affected": [row for one in every for row in _followers(one)][:_ROWS_LIMIT],
        "affected_count": sum(one.affected_count for one in every),
    }
    facts = {name: value for name, value in facts.items() if value or incident.live}
    joined = {"merged": [_part(one) for one in parts][:_ROWS_LIMIT], "merged_into": whole or ""}
    return facts | {name: value for name, value in joined.items() if value or name in incident.live}


def _followers(incident: Incident) -> list[dict[str, str]]:
    failures = ((failed, node_of(failed.job)) for failed in standing_units(incident.affected))
    return [{"namespace": j.namespace, "name": j.name, "failed_at": f.at.isoformat()} for f, j in failures]


def _part(incident: Incident) -> dict[str, Any]:
    job = node_of(incident.job)
    said = {"task_id": incident.incident_id, "namespace": job.namespace, "name": job.name, "count": incident.count}
    return said | {"last_at": incident.last_at.isoformat(), "over": not incident.active}


def amendment(task: SubmitTask, incident: Incident) -> AmendTask:
    """The amendment of an incident's task that points it at what the incident is about now."""
    return AmendTask(
        task_id=incident.incident_id,
        by=AGENT,
        by_kind="system",
        reason=f"{node_of(incident.job)} is what failed",
        title=task.title,
        description=task.description,
        error_message=task.error_message,
        target=task.target,
        context=task.context,
        source_ref=task.source_ref,
    )


def cancellation(incident: Incident, into: Incident | None) -> CancelTask:
    """The cancellation of a task whose failures are another incident's."""
    cause = f"{node_of(into.job)} ({into.incident_id})" if into else "another failure"
    reason = f"{node_of(incident.job)} is the same failure as {cause}"
    if into is not None and into.job != incident.job:
        reason = f"the failure of {node_of(incident.job)} follows from that of {cause}"
    return CancelTask(task_id=incident.incident_id, by=AGENT, by_kind="system", reason=reason)


def observed_outcome(incident: Incident, changed: Sequence[str] = ()) -> ReportOutcome:
    """The outcome that a closed incident shows: it works again. `changed` is what differs from the run that failed."""
    when = f" at {incident.closed_at:%Y-%m-%d %H:%M:%S} UTC" if incident.closed_at else ""
    note = f"Run {incident.closed_by} of {node_of(incident.job)} completed{when} after the failure."
    rules = policy()
    texts = {"changed": list(changed)}
    harmless = cleaned(rules, texts, texts, rules.message_level(0))
    return ReportOutcome(
        task_id=incident.incident_id, outcome="succeeded", note=note, changed=tuple(harmless["changed"])
    )


def _description(incident: Incident) -> str:
    origin = incident.origin
    tries = f" after {incident.tries} tries" if incident.tries > 1 else ""
    when = f" for {origin.nominal_start:%Y-%m-%d %H:%M} UTC" if origin.nominal_start else ""
    return f"{node_of(incident.job)} failed{tries}{when}."
