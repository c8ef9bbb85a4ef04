"""Warnings of Kubernetes as CloudEvents that submit a task. Pure."""

import re
from collections.abc import Mapping
from typing import Any

SUBMIT = "counterpoint.task.submit.v1"
AT_ONCE = frozenset(
    {
        "BackoffLimitExceeded",
        "DeadlineExceeded",
        "Evicted",
        "FailedCreate",
        "NodeNotReady",
        "OOMKilling",
        "ProvisioningFailed",
        "SystemOOM",
    }
)
"""Reasons that are reported at their first occurrence; others may pass by themselves."""
_URGENT = frozenset({"NodeNotReady", "SystemOOM"})
_GENERATED = "[bcdfghjklmnpqrstvwxz2456789]"
"""The characters of the suffixes that Kubernetes generates."""
_HASH, _RANDOM, _TIME, _ORDINAL = rf"-{_GENERATED}{{6,10}}", rf"-{_GENERATED}{{5}}", r"-\d{8,10}", r"-\d{1,4}"
_SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "Pod": (_HASH + _RANDOM, _TIME + _RANDOM, _RANDOM, _ORDINAL),
    "ReplicaSet": (_HASH,),
    "Job": (_TIME,),
}


def occurrences(event: Any) -> int:
    """Return how often an event has occurred."""
    counts = (_at(event, "series", "count"), _at(event, "count"), 1)
    return max(count for count in counts if isinstance(count, int) and not isinstance(count, bool))


def workload(kind: str, name: str) -> str:
    """Return the name of the workload of an object: its own name without the suffixes that are generated."""
    for suffix in _SUFFIXES.get(kind, ()):
        found = re.fullmatch(rf"(.+?){suffix}", name)
        if found:
            return found.group(1)
    return name


def cloud_event(event: Any, *, cluster: str, count: int) -> dict[str, Any] | None:
    """Return the CloudEvent of a warning that has occurred `count` times, or whose reason is reported at once.

    None for any other event. Its id is that of the event, which Kubernetes keeps while the same thing happens again.
    """
    uid, reason, message = (_text(event, *path) for path in (("metadata", "uid"), ("reason",), ("message",)))
    kind, name = _text(event, "involvedObject", "kind"), _text(event, "involvedObject", "name")
    if _at(event, "type") != "Warning" or not (uid and reason and kind and name):
        return None
    if occurrences(event) < count and reason not in AT_ONCE:
        return None
    namespace = _text(event, "involvedObject", "namespace") or _text(event, "metadata", "namespace")
    where = f"{namespace}/{name}" if namespace else name
    owner = workload(kind, name)
    component = _text(event, "source", "component") or _text(event, "reportingComponent")
    task = {
        "kind": "troubleshoot",
        "title": f"{reason}: {kind} {where}"[:300],
        "description": (message or f"{reason} of {kind} {where}")[:16_000],
        "error_message": (f"{reason}: {message}" if message else reason)[:16_000],
        "systems": ["kubernetes"],
        "priority": "urgent" if reason in _URGENT else "normal",
        "target": {
            "job": {
                "namespace": f"kubernetes/{cluster}"[:500],
                "name": (f"{namespace}/{owner}" if namespace else owner)[:500],
            }
        },
        "context": {
            "object": {"kind": kind, "namespace": namespace, "name": name},
            "component": component,
            "node": _text(event, "source", "host"),
            "occurrences": occurrences(event),
        },
    }
    return {
        "specversion": "1.0",
        "id": uid,
        "source": f"kubernetes/{cluster}",
        "type": SUBMIT,
        "datacontenttype": "application/json",
        "data": task,
    }


def _at(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Any, *names: str) -> str:
    found = _at(value, *names)
    return found.replace("\x00", "").strip() if isinstance(found, str) else ""
