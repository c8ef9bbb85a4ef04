"""Names of all subjects, streams and inboxes; spelled only here."""

import re
from typing import Literal

PROJECT_PATTERN = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
DEFAULT_PROJECT = "default"
SHARED_PROJECT = "shared"
SHARD = "0"

INTAKE, TASKS, DECISIONS, CHANGES, DEAD, ADVISORIES = "INTAKE", "TASKS", "DECISIONS", "CHANGES", "DEAD", "ADVISORIES"
CHECKPOINTS, CHECKPOINT = "CHECKPOINTS", "audit.checkpoint"
"""The stream of the audit log's signed checkpoints and its only subject, which belongs to no project."""
STREAMS: dict[str, tuple[str, ...]] = {
    INTAKE: ("intake.*.task", "intake.*.outcome", "intake.*.lineage"),
    TASKS: ("tasks.>",),
    DECISIONS: ("decisions.>",),
    CHANGES: ("changes.>",),
    DEAD: ("dead.>",),
    ADVISORIES: ("$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",),
    CHECKPOINTS: (CHECKPOINT,),
}
"""The subjects of each stream."""

EMPTY_SOURCE = (DEAD, "dead.-.-")
"""A stream and an unused subject in it: a stream source without messages."""

LIVE_ONLY = "decisions"
"""The kind of messages that are sent on `live.` alone. They are in the log, and no service consumes them."""

LIVE_STREAMS = (TASKS, DECISIONS, CHANGES)
"""Streams republished below `live.` for dashboards; never INTAKE, since foreign messages are not screened yet."""


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
    "counterpoint.session.summarize.v1": "tasks.{project}.session_summarize",
    "counterpoint.shadow.due.v1": "tasks.{project}.shadow_due",
    "counterpoint.notification.due.v1": "tasks.{project}.notification_due",
    "counterpoint.issue.due.v1": "tasks.{project}.issue_due",
    "counterpoint.tracker.due.v1": "tasks.{project}.tracker_due",
    "counterpoint.task.cancel.v1": "tasks.{project}.cancel_requested",
    "counterpoint.task.amend.v1": "tasks.{project}.amend_requested",
    "counterpoint.task.completed.v1": "tasks.{project}.completed",
    "counterpoint.task.failed.v1": "tasks.{project}.failed",
    "counterpoint.task.cancelled.v1": "tasks.{project}.cancelled",
    "counterpoint.decision.made.v1": "decisions.{project}.{agent}",
    "counterpoint.records.changed.v1": "changes.{project}.{service}",
    "counterpoint.message.died.v1": "dead.{project}",
}
"""The subject of each message type."""


BARE_TYPES = {
    "task": "counterpoint.task.submit.v1",
    "outcome": "counterpoint.outcome.report.v1",
    "lineage": "counterpoint.lineage.event.v1",
}
"""The type of bare JSON by the last token of its intake subject; these never change."""


def bare_type(subject: str) -> str | None:
    """Return the type of bare JSON on an intake subject; None for other subjects."""
    tokens = subject.split(".")
    return BARE_TYPES.get(tokens[2]) if len(tokens) == 3 and tokens[0] == "intake" else None


def of(message_type: str, project: str, agent: str = "*", service: str = "*") -> str:
    """Return the subject of a message type in a project; with project `*` a filter for all projects."""
    return _OF_TYPE[message_type].format(project=project, agent=agent, service=service)


def message_types() -> tuple[str, ...]:
    """Return all message types that have a subject."""
    return tuple(_OF_TYPE)


def live(subject: str) -> str:
    """Return the live copy of a subject."""
    return f"live.{subject}"


def live_kind(kind: Literal["tasks", "decisions"], project: str) -> str:
    """Filter for the live copies of one kind of event; with project `*` of all projects."""
    return live(f"{kind}.{project}.>")


def query(caller: str) -> str:
    """Return the subject of a service's queries."""
    return f"memory.{caller}.query"


def commit(caller: str, shard: str = SHARD) -> str:
    """Return the subject of a service's commits."""
    return f"memory.{caller}.commit.{shard}"


def command(caller: str) -> str:
    """Return the subject of a service's commands to memory."""
    return f"memory.{caller}.command"


def ingest(caller: str) -> str:
    """Return the subject of a service's ingest requests."""
    return f"memory.{caller}.ingest"


def put(caller: str) -> str:
    """Return the subject of a service's blob uploads."""
    return f"memory.{caller}.put"


REQUESTS = (query, commit, command, ingest, put)
"""Subjects of the requests that a service sends to memory, by the service's name."""

ANSWER_PREFIX = "_R_."
"""Prefix of reply subjects that the server makes for cross-account requests; no client may publish there."""


def inbox_prefix(user: str) -> str:
    """Return the prefix of the only inbox a NATS user may subscribe to."""
    return f"_INBOX_{user}"


def project_of(subject: str) -> str:
    """Return the project of an intake, tasks, decisions, changes or dead subject; `default` for an illegal name."""
    tokens = subject.split(".")
    if len(tokens) > 1 and PROJECT_PATTERN.fullmatch(tokens[1]):
        return tokens[1]
    return DEFAULT_PROJECT


def stream_of(subject: str) -> str:
    """Return the stream of a subject."""
    first = subject.split(".", 1)[0]
    streams = {"intake": INTAKE, "tasks": TASKS, "decisions": DECISIONS, "changes": CHANGES, "dead": DEAD}
    return streams[first] if subject != CHECKPOINT else CHECKPOINTS
