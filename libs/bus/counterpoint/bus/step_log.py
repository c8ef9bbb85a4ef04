"""Log events of an applied step: one for each message it sent, with ids and names but no text of users."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import structlog

from counterpoint.proto.memory import Commit, CommitReply, Origin, Outgoing

log = structlog.get_logger()

_TYPE = re.compile(r"counterpoint\.(.+)\.v\d+")
_NAMED = {"counterpoint.decision.made.v1": ("agent", "decision_type")}
"""Fields that are logged, by message type; their values are identifiers, not text of users."""
_CONFIDENCE = ("score", "band")
_INCIDENT = "incident"
"""The decision type whose value, such as `opened`, becomes the event name. Rules of lineage produce it, not users."""
_WORD = re.compile(r"[a-z_]{1,32}")


def log_effects(origin: Origin, commit: Commit, reply: CommitReply) -> None:
    """Log the effects of an applied step; a replayed or stale one has none."""
    if reply.status != "done":
        log.debug("step.without_effect", status=reply.status, message_id=origin.message_id, step=commit.step)
        return
    about = {"project": origin.project, "message_id": origin.message_id}
    for event, fields in effects(commit):
        log.info(event, **about, **{"task_id": origin.task_id} | fields)


def effects(commit: Commit) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and fields of an event per message; a step that only wrote yields one, with record counts by store."""
    for message in commit.messages:
        yield _sent(message)
    if commit.writes and not commit.messages:
        yield "records.written", {"stores": dict(Counter(write.store for write in commit.writes))}


def _sent(message: Outgoing) -> tuple[str, dict[str, Any]]:
    named = _TYPE.fullmatch(message.type)
    name = named[1] if named else message.type
    fields: dict[str, Any] = {} if message.task_id is None else {"task_id": message.task_id}
    if message.due_at is not None:
        return "timer.set", fields | {"message": name, "due_at": message.due_at.isoformat()}
    fields |= {field: message.data.get(field) for field in _NAMED.get(message.type, ())}
    decided = str(message.data.get("decision"))
    if fields.get("decision_type") == _INCIDENT and _WORD.fullmatch(decided):
        name = f"{_INCIDENT}.{decided}"
    if confidence := message.data.get("confidence"):
        fields |= {field: confidence.get(field) for field in _CONFIDENCE} if isinstance(confidence, dict) else {}
    return name, fields
