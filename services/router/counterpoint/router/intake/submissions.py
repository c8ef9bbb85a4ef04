"""Records of accepted tasks, events and Idempotency-Keys (store `submissions`)."""

import hashlib
import json
from typing import Any

from counterpoint.proto.messages import Id, ProjectName, Shape, Time
from counterpoint.proto.tasks import Kind, SubmitTask, Task

STORE = "submissions"


class Submission(Shape):
    """An accepted task, under `task_key`. `content_sha256` identifies its content."""

    task_id: Id
    project: ProjectName
    content_sha256: str
    kind: Kind | str
    title: str | None = None
    description: str
    submitted_by: str
    submitted_by_kind: str
    submitted_at: Time
    ignored: tuple[str, ...] = ()

    def as_task(self) -> Task:
        """Return the task, until the manager has made its record."""
        return Task(
            task_id=self.task_id,
            project=self.project,
            kind=self.kind,
            state="submitted",
            title=self.title,
            description=self.description,
            submitted_by=self.submitted_by,
            submitted_at=self.submitted_at,
            ignored=self.ignored,
        )


class IdempotencyRecord(Shape):
    """An accepted event or request and its task, under `event_key` or `request_key`."""

    task_id: Id
    content_sha256: str
    at: Time


def task_key(task_id: str) -> str:
    """Return the record id of a task."""
    return f"task:{task_id}"


def event_key(source: str, event_id: str) -> str:
    """Return the record id of a CloudEvent."""
    return f"event:{_sha256(source, event_id)}"


def request_key(principal: str, key: str) -> str:
    """Return the record id of a principal's Idempotency-Key."""
    return f"request:{_sha256(principal, key)}"


def content_sha256(task: SubmitTask) -> str:
    """Return the hash of a submission without its task id and project."""
    return body_sha256(task.model_dump(mode="json", exclude={"task_id", "project"}, exclude_none=True))


def body_sha256(body: Any) -> str:
    """Return the hash of a JSON value, independent of key order."""
    return _sha256(json.dumps(body, sort_keys=True, separators=(",", ":")))


def _sha256(*parts: str) -> str:
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()
