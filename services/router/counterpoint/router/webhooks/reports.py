"""Reports: failures, recoveries and notes in the body of a webhook. Pure."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

REPORTS_LIMIT = 100
"""Events of one request; further ones are named as ignored."""


@dataclass(frozen=True)
class Report:
    """A failure that becomes a task, or with `resolved` its recovery. `key` is the sender's identity of it.

    `fields` are those of SubmitTask.
    """

    key: str
    fields: dict[str, Any] = field(default_factory=dict)
    resolved: bool = False


@dataclass(frozen=True)
class IssueNote:
    """A comment on issues of a repository, or a pull request that closes them: noted on the lines of their open tasks.

    `key` is the sender's identity of it, `numbers` are those of the issues.
    """

    key: str
    text: str
    repository_url: str
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class IgnoredEvent:
    """An event that has no effect, and the reason."""

    reason: str


Event = Report | IssueNote | IgnoredEvent


def issue_key(repository_url: str, number: int) -> str:
    """Return the key of the report of a new issue."""
    return f"{repository_url}/issues/{number}"


def task_id_of(source: str, key: str) -> str:
    """Return the id of the task of a report, the same for its recovery."""
    identity = f"{source}\x1f{key}".encode()
    return f"hook-{hashlib.sha256(identity).hexdigest()[:32]}"


def text_of(value: Any, limit: int = 16_000) -> str | None:
    """Return a value as a text that a message may hold, None for nothing."""
    if value is None or isinstance(value, (dict, list)):
        return None
    # JSON may hold half a character, which no text can.
    text = str(value).replace("\x00", "").encode(errors="replace").decode().strip()
    return text[:limit] or None


def path(value: Any, *names: str | int) -> Any:
    """Return the value at a path in JSON, None where there is none."""
    for name in names:
        if isinstance(value, dict) and isinstance(name, str):
            value = value.get(name)
        elif isinstance(value, list) and isinstance(name, int) and name < len(value):
            value = value[name]
        else:
            return None
    return value
