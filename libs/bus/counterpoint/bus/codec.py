"""CloudEvents over NATS: decoding of binary mode, structured mode and bare JSON; encoding in binary mode."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypedDict

from counterpoint.guard.names import is_project
from counterpoint.proto import subjects
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.ids import foreign_id
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES

STRUCTURED = "application/cloudevents+json"
_BARE = subjects.BARE_TYPES
_NUMBER = re.compile(r"[0-9]{1,12}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Inbound:
    """A received message. `id` is ours; `source` and `event_id` are the sender's, if any.

    `trusted` messages were published by memory; only these have a capability and a task. An `event_id` without a
    `source` is the `Nats-Msg-Id` of bare JSON.
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


class DeliveryInfo(TypedDict):
    """Metadata of a delivery. `delivered` counts the deliveries of its message from 1."""

    stream: str
    sequence: int
    delivered: int
    stored_at: datetime


def envelope(
    subject: str, headers: Mapping[str, str], *, stream: str, sequence: int, delivered: int, stored_at: datetime
) -> Inbound:
    """Return a delivery before its body is decoded: its type is empty, its body None.

    The fence grows with every delivery and every incarnation of the stream.
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
    """Decode a message of a stream. Raises `Permanent` `malformed`, `too_large`, `invalid` or `unknown_type`."""
    known = envelope(subject, headers, stream=stream, sequence=sequence, delivered=delivered, stored_at=stored_at)
    if not known.trusted:
        if len(data) > MESSAGE_LIMIT_BYTES:
            raise _refused(ErrorCode.TOO_LARGE, "body", f"has {len(data)} bytes; the limit is {MESSAGE_LIMIT_BYTES}")
        return _foreign(known, headers, data)
    _require(headers, ("ce-id", "ce-type", "ce-time"))
    try:
        time = datetime.fromisoformat(headers["ce-time"])
    except ValueError as error:
        raise _refused(ErrorCode.INVALID, "ce-time", "is not an RFC 3339 time") from error
    return replace(known, type=headers["ce-type"], body=_json(data), time=time)


def _foreign(known: Inbound, headers: Mapping[str, str], data: bytes) -> Inbound:
    tokens = known.subject.split(".")
    if len(tokens) != 3 or tokens[2] not in _BARE:
        raise _refused(ErrorCode.INVALID, "subject", "is not an intake subject")
    if tokens[1] != known.project:
        raise _refused(ErrorCode.INVALID, "project", "is not a valid project name")
    if known.project == subjects.SHARED_PROJECT:
        raise _refused(ErrorCode.INVALID, "project", "is shared by all projects and has no intake on the bus")
    bare = _BARE[tokens[2]]
    plain = {name.lower(): value for name, value in headers.items()}
    if plain.get("content-type", "").lower().startswith(STRUCTURED):
        event = _json(data)
        if not isinstance(event, dict):
            raise _refused(ErrorCode.MALFORMED, "body", "must be an object in a structured CloudEvent")
        attributes = {name: value for name, value in event.items() if isinstance(value, str)}
        _require(attributes, ("specversion", "id", "source", "type"))
        _check_type(attributes["type"], bare)
        body, source, event_id = event.get("data"), attributes["source"], attributes["id"]
        trace = _trace(attributes.get("traceparent", plain.get("traceparent")))
    elif "ce-specversion" in plain or "ce-id" in plain:
        _require(plain, ("ce-specversion", "ce-id", "ce-source", "ce-type"))
        _check_type(plain["ce-type"], bare)
        body, source, event_id = _json(data), plain["ce-source"], plain["ce-id"]
        trace = _trace(plain.get("traceparent"))
    else:
        return replace(known, type=bare, body=_json(data), source=None, event_id=plain.get("nats-msg-id"))
    return replace(known, type=bare, body=body, source=source, event_id=event_id, traceparent=trace)


def _trace(value: str | None) -> str | None:
    """Return a valid W3C trace context, or None."""
    return value if value is not None and _TRACEPARENT.fullmatch(value) else None


def _require(attributes: Mapping[str, str], required: tuple[str, ...]) -> None:
    missing = tuple(
        Problem(field=name, problem="is required in a CloudEvent") for name in required if not attributes.get(name)
    )
    if missing:
        raise Permanent(ErrorCode.INVALID, missing)


def _check_type(event_type: str, expected: str) -> None:
    if event_type != expected and expected != _BARE["lineage"]:
        raise _refused(ErrorCode.UNKNOWN_TYPE, "ce-type", f"must be {expected} on this subject")


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _refused(ErrorCode.MALFORMED, "body", f"is not valid JSON: {error}"[:200]) from error


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
    publication: int | None = None,
    seq: int | None = None,
    capability: str | None = None,
    traceparent: str | None = None,
) -> dict[str, str]:
    """Return the headers of an outgoing message in binary mode. `publication` is the incarnation of its stream and
    `seq` its position in the log; a message that is only live has neither."""
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
    }
    if publication is not None:
        made["ce-publication"] = str(publication)
    if seq is not None:
        made["ce-sequence"] = str(seq)
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
