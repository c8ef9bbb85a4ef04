"""Every subject, stream and inbox name. Spelled here and nowhere else."""

import re

PROJECT_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
DEFAULT_PROJECT = "default"
SHARED_PROJECT = "shared"
SHARD = "0"

INTAKE, TASKS, DECISIONS, CHANGES, DEAD, ADVISORIES = "INTAKE", "TASKS", "DECISIONS", "CHANGES", "DEAD", "ADVISORIES"
CHECKPOINTS, CHECKPOINT = "CHECKPOINTS", "audit.checkpoint"
"""The stream of the audit log's signed checkpoints, and the one subject in it: what belongs to no project."""
STREAMS: dict[str, tuple[str, ...]] = {
    INTAKE: ("intake.*.task", "intake.*.outcome", "intake.*.lineage"),
    TASKS: ("tasks.>",),
    DECISIONS: ("decisions.>",),
    CHANGES: ("changes.>",),
    DEAD: ("dead.>",),
    ADVISORIES: ("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",),
    CHECKPOINTS: (CHECKPOINT,),
}
"""Stream name to the subjects it holds."""

EMPTY_SOURCE = (DEAD, "dead.-.-")
"""A stream, and a subject of it on which nothing is published: a source that brings nothing."""

LIVE_STREAMS = (TASKS, DECISIONS, CHANGES)
"""Streams that are republished below `live.` for dashboards; never INTAKE, what outsiders send is shown to nobody."""


_OF_TYPE = {
    "counterpoint.task.submit.v1": "intake.{project}.task",
    "counterpoint.outcome.report.v1": "intake.{project}.outcome",
    "counterpoint.lineage.event.v1": "intake.{project}.lineage",
    "counterpoint.task.submitted.v1": "tasks.{project}.submitted",
    "counterpoint.task.rejected.v1": "tasks.{project}.rejected",
    "counterpoint.task.routed.v1": "tasks.{project}.routed",
    "counterpoint.task.delegated.v1": "tasks.{project}.delegated",
    "counterpoint.task.worked.v1": "tasks.{project}.worked",
    "counterpoint.task.proposed.v1": "tasks.{project}.proposed",
    "counterpoint.task.escalated.v1": "tasks.{project}.escalated",
    "counterpoint.task.overridden.v1": "tasks.{project}.overridden",
    "counterpoint.task.resumed.v1": "tasks.{project}.resumed",
    "counterpoint.approval.requested.v1": "tasks.{project}.approval_requested",
    "counterpoint.approval.decided.v1": "tasks.{project}.approval_decided",
    "counterpoint.task.outcome_reported.v1": "tasks.{project}.outcome_reported",
    "counterpoint.task.due.v1": "tasks.{project}.due",
    "counterpoint.shadow.due.v1": "tasks.{project}.shadow_due",
    "counterpoint.task.cancel.v1": "tasks.{project}.cancel_requested",
    "counterpoint.task.amend.v1": "tasks.{project}.amend_requested",
    "counterpoint.task.completed.v1": "tasks.{project}.completed",
    "counterpoint.task.failed.v1": "tasks.{project}.failed",
    "counterpoint.task.cancelled.v1": "tasks.{project}.cancelled",
    "counterpoint.decision.made.v1": "decisions.{project}.{agent}",
    "counterpoint.records.changed.v1": "changes.{project}.{service}",
    "counterpoint.message.died.v1": "dead.{project}",
}
"""Message type to the subject it travels on."""


BARE_TYPES = {
    "task": "counterpoint.task.submit.v1",
    "outcome": "counterpoint.outcome.report.v1",
    "lineage": "counterpoint.lineage.event.v1",
}
"""What bare JSON on an intake subject is, by the subject's last token; for ever."""


def bare_type(subject: str) -> str | None:
    """The type of bare JSON on an intake subject; None elsewhere."""
    tokens = subject.split(".")
    return BARE_TYPES.get(tokens[2]) if len(tokens) == 3 and tokens[0] == "intake" else None


def of(message_type: str, project: str, agent: str = "*", service: str = "*") -> str:
    """The subject of a message type in a project; with project `*` the filter for all projects."""
    return _OF_TYPE[message_type].format(project=project, agent=agent, service=service)


def message_types() -> tuple[str, ...]:
    """Every message type that has a subject."""
    return tuple(_OF_TYPE)


def live(subject: str) -> str:
    """The republished copy of a subject, to look at."""
    return f"live.{subject}"


def query(caller: str) -> str:
    """Where a service asks memory."""
    return f"memory.{caller}.query"


def commit(caller: str, shard: str = SHARD) -> str:
    """Where a service commits."""
    return f"memory.{caller}.commit.{shard}"


def ingest(caller: str) -> str:
    """Where a service hands documents to memory."""
    return f"memory.{caller}.ingest"


def put(caller: str) -> str:
    """Where a service uploads a blob in parts."""
    return f"memory.{caller}.put"


ANSWER_PREFIX = "_R_."
"""Begins the reply subjects that the server makes for requests out of another account, and no client may name."""


def inbox_prefix(user: str) -> str:
    """The only inbox a NATS user may listen on."""
    return f"_INBOX_{user}"


def project_of(subject: str) -> str:
    """The project token of an intake, tasks, decisions, changes or dead subject; `default` when it is no legal name."""
    tokens = subject.split(".")
    if len(tokens) > 1 and PROJECT_PATTERN.fullmatch(tokens[1]):
        return tokens[1]
    return DEFAULT_PROJECT


def stream_of(subject: str) -> str:
    """The stream that holds a subject."""
    first = subject.split(".", 1)[0]
    streams = {"intake": INTAKE, "tasks": TASKS, "decisions": DECISIONS, "changes": CHANGES, "dead": DEAD}
    return streams[first] if subject != CHECKPOINT else CHECKPOINTS
