"""Moves: what the manager decides when something happens to a task, as a value.

The record of a live task is written by a transition of the workflow alone, because its version fences the work under
way: what is learned without a transition goes to the attempts and to the line.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from counterpoint.manager.dossier import Dossier
from counterpoint.manager.workflow import Row
from counterpoint.proto.attempts import Attempt
from counterpoint.proto.decisions import Confidence
from counterpoint.proto.line import ActionKind
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import Task


@dataclass(frozen=True, slots=True)
class Said:
    """One step of the manager's reasoning, an action on the line."""

    kind: ActionKind
    reasoning: str


@dataclass(frozen=True, slots=True)
class Move:
    """What is done in one commit.

    `said`: the reasoning, each step after the one before. `decision`: what was decided in a few words; without it the
    move is seen on the line only. `task`: the record as it becomes. `delegate`: the developer is given it.
    `learned`: attempts as they become. `reassess`: confidence is to be recomputed in a while.
    `quiet_at`: when it is looked again whether the incident has been quiet.
    """

    said: tuple[Said, ...]
    decision: str | None = None
    confidence: Confidence | None = None
    task: Task | None = None
    delegate: Literal["work", "reassess"] | None = None
    messages: tuple[Message, ...] = ()
    learned: tuple[Attempt, ...] = ()
    reassess: bool = False
    quiet_at: datetime | None = None


def moved(task: Task, row: Row, now: datetime, **changes: Any) -> Task:
    """The record after a transition. An escalation lasts as long as the task waits on it, unless `changes` say so."""
    always = {
        "state": row.to.state,
        "waiting_for": row.to.waiting_for,
        "ended_at": now if row.to.ended else None,
        "escalation": None,
    }
    return task.model_copy(update=always | changes)


def attempting(task: Task, row: Row, now: datetime, number: int, **changes: Any) -> Task:
    """The record with attempt `number` given to the developer; no proposal is pending any more."""
    nothing_pending = dict.fromkeys(("attempt_id", "attempt_action_id", "proposal", "artifact_sha256"))
    return moved(task, row, now, **({"attempt": number} | nothing_pending | changes))


def late(dossier: Dossier, what: str) -> Move:
    """Something that came too late or does not belong where the task stands: noted, without effect."""
    waiting = f" waiting for {dossier.place.waiting_for}" if dossier.place.waiting_for else ""
    return Move(said=(Said("late", f"{what}: no effect, the task is {dossier.place.state}{waiting}"),))
