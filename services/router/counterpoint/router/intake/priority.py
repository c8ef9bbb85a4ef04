"""The urgency of a submission whose task is not known yet (docs/operations.md#overload). Pure."""

import json
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from counterpoint.bus.turns import Urgency, urgency_of_task
from counterpoint.proto.messages import Time

_TIME: TypeAdapter[datetime] = TypeAdapter(Time)


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
