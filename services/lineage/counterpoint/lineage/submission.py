"""What is asked of others about an incident: the task when it opens, the observed outcome when a run closes it."""

from typing import Any

from counterpoint.guard.judge import cleaned
from counterpoint.guard.policy import policy
from counterpoint.lineage.events import CodeLocation
from counterpoint.lineage.incidents import Incident, Ledger
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.tasks import JobRef, SubmitTask, Target
from counterpoint.recall.names import node_of
from counterpoint.recall.radius import Radius

_TITLE_LIMIT_CHARS = 300
_DESCRIPTION_LIMIT_CHARS = 16_000
_ROWS_LIMIT = 100
_NAMED_JOBS = 20


def submission(
    incident: Incident,
    radius: Radius,
    ledger: Ledger,
    *,
    stack_trace: str | None = None,
    code: CodeLocation | None = None,
) -> SubmitTask:
    """The task of an incident. Its id is the incident's, so that asking twice is asking once.

    `context` holds what a person would look up first: tries, log, owner, times, what it is part of, what lies
    downstream (rows as in findings) and how many failures the cap held back in the last hour. Secrets in names and
    addresses are redacted; those in errors were so when they were read.
    """
    origin, job = incident.origin, node_of(incident.job)
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
        "downstream": [row.model_dump(exclude_none=True) for row in radius.downstream[:_ROWS_LIMIT]],
        "downstream_truncated": radius.truncated or len(radius.downstream) > _ROWS_LIMIT,
        "stack_trace": stack_trace,
        "code": code.model_dump(exclude_none=True) if code else None,
        "capped_last_hour": len(ledger.capped),
    }
    texts = {
        "title": f"{job.name} failed: {' '.join(incident.error_message.split())}",
        "description": _description(incident, radius),
        "context": {key: value for key, value in context.items() if value not in (None, [])},
    }
    rules = policy()
    harmless = cleaned(rules, texts, texts, rules.message_level(0))
    return SubmitTask(
        kind="troubleshoot",
        task_id=incident.incident_id,
        title=harmless["title"][:_TITLE_LIMIT_CHARS],
        description=harmless["description"][:_DESCRIPTION_LIMIT_CHARS],
        error_message=incident.error_message,
        target=Target(job=JobRef(namespace=job.namespace, name=job.name), run_id=origin.run_id),
        context=harmless["context"],
        source_ref=f"openlineage:{job}#{origin.run_id}",
    )


def observed_outcome(incident: Incident) -> ReportOutcome:
    """The outcome that a closed incident shows: it works again, nobody has said why."""
    when = f" at {incident.closed_at:%Y-%m-%d %H:%M:%S} UTC" if incident.closed_at else ""
    note = f"Run {incident.closed_by} of {node_of(incident.job)} completed{when} after the failure."
    return ReportOutcome(task_id=incident.incident_id, outcome="succeeded", note=note)


def _description(incident: Incident, radius: Radius) -> str:
    origin = incident.origin
    tries = f" after {incident.tries} tries" if incident.tries > 1 else ""
    when = f" for {origin.nominal_start:%Y-%m-%d %H:%M} UTC" if origin.nominal_start else ""
    jobs = list(dict.fromkeys(f"{row.namespace}/{row.name}" for row in radius.downstream if row.kind == "job"))
    more = " and more" if radius.truncated or len(jobs) > _NAMED_JOBS else ""
    rests = f" Downstream of it: {', '.join(jobs[:_NAMED_JOBS])}{more}." if jobs else ""
    return f"{node_of(incident.job)} failed{tries}{when}. Find out why and what puts it right.{rests}"
