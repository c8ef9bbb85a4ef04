"""Priority and deadline: the order in which the waiting tasks of one project are started (docs/operations.md). Pure."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError

from counterpoint.bus.turns import Urgency
from counterpoint.proto.messages import Time

WEIGHTS: Mapping[str, int] = {"low": 1, "normal": 2, "high": 4, "urgent": 8}
"""Shares of the starts of a project by priority, while tasks of each wait."""
HORIZON = timedelta(hours=1)
"""Time after its arrival at which a task without an earlier deadline is due, so that later ones do not overtake it for
ever."""
_TIME: TypeAdapter[datetime] = TypeAdapter(Time)


def urgency_of_task(priority: str, deadline: datetime | None, arrived_at: datetime) -> Urgency:
    """Return the urgency of a task."""
    due = arrived_at + HORIZON if deadline is None else min(max(deadline, arrived_at), arrived_at + HORIZON)
    return Urgency(WEIGHTS.get(priority, WEIGHTS["normal"]), due.timestamp())


def urgency_of_body(data: bytes, arrived_at: datetime) -> Urgency:
    """Return the urgency of a submission, bare or in a structured event. An invalid body is refused in its turn."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    task = body.get("data") if isinstance(body, dict) and "specversion" in body else body
    given: dict[str, Any] = task if isinstance(task, dict) else {}
    try:
        deadline = _TIME.validate_python(given["deadline"])
    except (KeyError, ValidationError):
        deadline = None
    return urgency_of_task(str(given.get("priority")), deadline, arrived_at)
