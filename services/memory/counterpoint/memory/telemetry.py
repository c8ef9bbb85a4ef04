"""Metrics of what is committed; their names are part of the contract."""

import json
from datetime import datetime

from prometheus_client import Counter, Histogram

from counterpoint.memory.rows import Prepared
from counterpoint.proto.tasks import ENDED

TASKS = Counter("counterpoint_tasks", "Tasks by the state they came to", ["project", "kind", "state"])
DURATION = Histogram(
    "counterpoint_task_duration_seconds",
    "From submission to the end",
    ["kind"],
    buckets=(0.01, 0.05, 0.1, 0.5, 1, 5, 30, 120, 600, 3600, 21_600, 86_400),
)
CONFIDENCE = Counter("counterpoint_confidence", "Decisions by their band of confidence", ["band"])
DEAD_LETTERS = Counter("counterpoint_dead_letters", "Messages that were dead-lettered", ["project", "consumer"])


def observe(applied: Prepared) -> None:
    """Count what one applied commit did."""
    for row in applied.writes:
        if row.body is None:
            continue
        match row.store:
            case "tasks":
                task = json.loads(row.body)
                kind, state = str(task.get("kind")), str(task.get("state"))
                TASKS.labels(applied.project, kind, state).inc()
                if state in ENDED and {"submitted_at", "ended_at"} <= task.keys():
                    began, ended = (datetime.fromisoformat(task[name]) for name in ("submitted_at", "ended_at"))
                    DURATION.labels(kind).observe((ended - began).total_seconds())
            case "decisions":
                confidence = json.loads(row.body).get("confidence")
                if confidence:
                    CONFIDENCE.labels(str(confidence.get("band"))).inc()
            case "dead_letters":
                DEAD_LETTERS.labels(applied.project, applied.consumer).inc()
            case _:
                continue
