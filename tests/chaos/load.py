"""The load: tasks of two kinds, how each comes in, and how its attempts go."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from counterpoint.proto.ids import new_id

QUESTIONS = (
    "Who owns finance_daily and where are they reached?",
    "Which resolvers do the workers use?",
    "How do I run a day again?",
    "When does orders_ingest run?",
    "Which file does clean_orders write?",
    "Who unlocks a locked account?",
)
ERROR = "could not resolve ldap.internal: DNS lookup timed out after 5 s (resolver 10.20.0.2:53)"


@dataclass(frozen=True)
class Job:
    """One task of the load: how it comes in, and how its attempts go."""

    task_id: str
    body: dict[str, Any]
    by_nats: bool
    outcomes: tuple[str, ...]


def jobs_of(choose: random.Random) -> Iterator[Job]:
    """The load, as much as is taken: half questions, half troubleshooting with no, one or two outcomes; every third
    comes by NATS."""
    for n in count():
        task_id = new_id()
        body: dict[str, Any]
        outcomes: tuple[str, ...] = ()
        if n % 2:
            body = {"kind": "question", "description": choose.choice(QUESTIONS)}
        else:
            body = {
                "kind": "troubleshoot",
                "description": f"fetch_orders of day {n} cannot resolve a name",
                "error_message": ERROR,
            }
            outcomes = choose.choice(((), ("succeeded",), ("succeeded",), ("failed", "succeeded")))
        yield Job(task_id, body, by_nats=n % 3 == 0, outcomes=outcomes)
