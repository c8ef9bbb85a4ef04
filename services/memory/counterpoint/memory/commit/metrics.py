"""Metrics of commits; their names are part of the contract."""

import json
from datetime import datetime
from typing import Any

from prometheus_client import Counter, Histogram

from counterpoint.memory.record.plan import CommitPlan
from counterpoint.proto.tasks import ENDED

TASKS = Counter("counterpoint_tasks", "Tasks by the state they reached", ["project", "kind", "state"])
DURATION = Histogram(
    "counterpoint_task_duration_seconds",
    "From submission to the end",
    ["kind"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30, 120, 600, 3600, 21_600, 86_400),
)
CONFIDENCE = Counter("counterpoint_confidence", "Decisions by their band of confidence", ["band"])
DEAD_LETTERS = Counter("counterpoint_dead_letters", "Messages that became dead letters", ["project", "consumer"])


def observe(applied: CommitPlan) -> None:
    """Count the effects of one applied commit. A body of another shape than the contract's is counted as far as
    possible."""
    for row in applied.writes:
        if row.body is None:
            continue
        match row.store:
            case "tasks":
                task = json.loads(row.body)
                kind, state = str(task.get("kind")), str(task.get("state"))
                TASKS.labels(applied.project, kind, state).inc()
                if state in ENDED and (seconds := _between(task.get("submitted_at"), task.get("ended_at"))) is not None:
                    DURATION.labels(kind).observe(seconds)
            case "decisions":
                confidence = json.loads(row.body).get("confidence")
                if isinstance(confidence, dict):
                    CONFIDENCE.labels(str(confidence.get("band"))).inc()
            case "dead_letters":
                DEAD_LETTERS.labels(applied.project, applied.consumer).inc()
            case _:
                continue


def _between(began: Any, ended: Any) -> float | None:
    """Return the seconds between two times, None if one of them is missing."""
    try:
        return (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
    except (TypeError, ValueError):
        return None
