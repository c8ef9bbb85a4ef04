"""CloudEvents over NATS: what comes in (binary, structured or bare JSON) and what goes out (binary)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypedDict

from counterpoint.guard.names import is_project
from counterpoint.proto import subjects
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.ids import foreign_id
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES

STRUCTURED = "application/cloudevents+json"
_BARE = subjects.BARE_TYPES
_NUMBER = re.compile(r"[0-9]{1,12}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Inbound:
    """A message as it came in. `id` is ours; `source` and `event_id` are what the sender said, if anything.

    `trusted` messages were published by memory: only then do capability and task mean anything. An `event_id` without
    a `source` is the `Nats-Msg-Id` of bare JSON.
    """

    id: str
    type: str
    project: str
    subject: str
    body: Any
    time: datetime
    trusted: bool
    source: str | None = None
    event_id: str | None = None
    task_id: str | None = None
    capability: str | None = None
    traceparent: str | None = None
    fence: int = 1
    stream_sequence: int = 0


class Delivered(TypedDict):
    """What the bus says of a delivery. `delivered` counts those of its message from 1."""

    stream: str
    sequence: int
    delivered: int
    stored_at: datetime


def envelope(
    subject: str, headers: Mapping[str, str], *, stream: str, sequence: int, delivered: int, stored_at: datetime
) -> Inbound:
    """What is known of a delivery before it is decoded, whatever it holds: its type is empty, its body None.

    The fence grows with every delivery, and with every life of the stream.
    """
    trusted = stream != subjects.INTAKE
    at = stored_at.astimezone(UTC)
    foreign = foreign_id(stream, str(sequence), int(at.timestamp() * 1000))
    project = subjects.project_of(subject)
    known = Inbound(
        id=foreign,
        type="",
        project=project if trusted or is_project(project) else subjects.DEFAULT_PROJECT,
        subject=subject,
        body=None,
        time=at,
        trusted=trusted,
        source=headers.get("ce-source"),
        event_id=headers.get("ce-id"),
        traceparent=_trace(headers.get("traceparent")),
        fence=delivered,
        stream_sequence=sequence,
    )
    if not trusted:
        return known
    return replace(
        known,
        id=headers.get("ce-id") or foreign,
        task_id=headers.get("ce-correlationid"),
        capability=headers.get("ce-capability"),
        fence=_number(headers.get("ce-publication", "1")) << 20 | delivered,
    )


def decode(
    subject: str,
    headers: Mapping[str, str],
    data: bytes,
    *,
    stream: str,
    sequence: int,
    delivered: int,
    stored_at: datetime,
) -> Inbound:
    """Read a message from a stream. Raises `Permanent` `malformed`, `too_large`, `invalid` or `unknown_type`."""
    known = envelope(subject, headers, stream=stream, sequence=sequence, delivered=delivered, stored_at=stored_at)
    if not known.trusted:
        if len(data) > MESSAGE_LIMIT_BYTES:
            raise _refused("too_large", "body", f"{len(data)} bytes, more than {MESSAGE_LIMIT_BYTES}")
        return _foreign(known, headers, data)
    _complete(headers, ("ce-id", "ce-type", "ce-time"))
    try:
        time = datetime.fromisoformat(headers["ce-time"])
    except ValueError as error:
        raise _refused("invalid", "ce-time", "is no time") from error
    return replace(known, type=headers["ce-type"], body=_json(data), time=time)


def _foreign(known: Inbound, headers: Mapping[str, str], data: bytes) -> Inbound:
    tokens = known.subject.split(".")
    if len(tokens) != 3 or tokens[2] not in _BARE:
        raise _refused("invalid", "subject", "is no intake subject")
    if tokens[1] != known.project:
        raise _refused("invalid", "project", "is no project name")
    if known.project == subjects.SHARED_PROJECT:
        raise _refused("invalid", "project", "is what every project reads, and takes nothing in by the bus")
    bare = _BARE[tokens[2]]
    plain = {name.lower(): value for name, value in headers.items()}
    if plain.get("content-type", "").lower().startswith(STRUCTURED):
        event = _json(data)
        if not isinstance(event, dict):
            raise _refused("malformed", "body", "a structured CloudEvent is an object")
        said = {name: value for name, value in event.items() if isinstance(value, str)}
        _complete(said, ("specversion", "id", "source", "type"))
        _known(said["type"], bare)
        body, source, event_id = event.get("data"), said["source"], said["id"]
        trace = _trace(said.get("traceparent", plain.get("traceparent")))
    elif "ce-specversion" in plain or "ce-id" in plain:
        _complete(plain, ("ce-specversion", "ce-id", "ce-source", "ce-type"))
        _known(plain["ce-type"], bare)
        body, source, event_id = _json(data), plain["ce-source"], plain["ce-id"]
        trace = _trace(plain.get("traceparent"))
    else:
        return replace(known, type=bare, body=_json(data), source=None, event_id=plain.get("nats-msg-id"))
    return replace(known, type=bare, body=body, source=source, event_id=event_id, traceparent=trace)


def _trace(said: str | None) -> str | None:
    """A W3C trace context; what is none is left out, for it is no part of the task."""
    return said if said is not None and _TRACEPARENT.fullmatch(said) else None


def _complete(said: Mapping[str, str], required: tuple[str, ...]) -> None:
    missing = tuple(
        Problem(field=name, problem="is required in a CloudEvent") for name in required if not said.get(name)
    )
    if missing:
        raise Permanent("invalid", missing)


def _known(event_type: str, expected: str) -> None:
    if event_type != expected and expected != _BARE["lineage"]:
        raise _refused("unknown_type", "ce-type", f"this subject takes {expected}")


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _refused("malformed", "body", f"is no JSON: {error}"[:200]) from error


def _number(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 1


def _refused(code: str, field: str, problem: str) -> Permanent:
    return Permanent(code, (Problem(field=field, problem=problem),))


def headers(
    *,
    message_id: str,
    message_type: str,
    source: str,
    time: datetime,
    task_id: str | None,
    cause: str,
    task_version: int | None,
    publication: int,
    seq: int,
    capability: str | None,
    traceparent: str | None = None,
) -> dict[str, str]:
    """The headers of an outgoing message in binary mode. `publication` counts its stream's lives, for the fence."""
    made = {
        "Nats-Msg-Id": message_id,
        "ce-specversion": "1.0",
        "ce-id": message_id,
        "ce-type": message_type,
        "ce-source": f"counterpoint/{source}",
        "ce-time": time.isoformat(),
        "ce-datacontenttype": "application/json",
        "ce-dataschema": f"https://counterpoint.dev/schemas/{message_type}",
        "ce-causationid": cause,
        "ce-publication": str(publication),
        "ce-sequence": str(seq),
    }
    if task_id is not None:
        made["ce-correlationid"] = task_id
        made["ce-subject"] = task_id
    if task_version is not None:
        made["ce-taskversion"] = str(task_version)
    if capability is not None:
        made["ce-capability"] = capability
    if traceparent is not None:
        made["traceparent"] = traceparent
    return made
