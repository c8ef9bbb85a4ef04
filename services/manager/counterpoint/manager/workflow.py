"""The workflow of a task as a table: in which state which event leads where (row E2).

A combination that has no row is refused: the event is noted on the line of the task and has no effect.
"""

from enum import StrEnum
from typing import NamedTuple

from counterpoint.proto.tasks import ENDED, State, WaitingFor


class Event(StrEnum):
    """What can happen to a task."""

    ROUTED = "routed"
    ANSWERED = "worked: answered"
    PROPOSED = "worked: proposed"
    SHADOWED = "worked: proposed in shadow"
    STOPPED = "worked: stopped"
    ROSE = "worked: confidence rose"
    SUCCEEDED = "outcome: succeeded"
    FAILED = "outcome: failed or partial"
    OVERRIDDEN = "overridden"
    AMENDED = "amended"
    REASSESS_DUE = "due: reassess"
    OUTCOME_DUE = "due: outcome"
    DEADLINE_DUE = "due: deadline"
    QUIET_DUE = "due: quiet"
    CANCEL = "cancel"


class Guard(StrEnum):
    """What decides between two rows of the same state and event."""

    NEEDS_DOCUMENT = "a document is needed"
    NEEDS_DECISION = "no document would help"
    MAY_RETRY = "another attempt is allowed"
    SAME_FAILURE = "the same error signature has failed too often"
    USED_UP = "all attempts are used up"


class Place(NamedTuple):
    """Where a task stands. A task without a record stands at `SUBMITTED`."""

    state: State
    waiting_for: WaitingFor | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing can happen to the task any more."""
        return self.state in ENDED


SUBMITTED = Place("submitted")
WORKING = Place("working")
AWAITS_OUTCOME = Place("input_required", "outcome")
AWAITS_DOCUMENTS = Place("input_required", "documents")
AWAITS_OVERRIDE = Place("input_required", "override")
COMPLETED = Place("completed")
FAILED = Place("failed")
CANCELLED = Place("cancelled")

LIVE = (WORKING, AWAITS_OUTCOME, AWAITS_DOCUMENTS, AWAITS_OVERRIDE)
ESCALATED = (AWAITS_DOCUMENTS, AWAITS_OVERRIDE)


class Row(NamedTuple):
    """One transition, with the messages that tell of it."""

    at: Place
    event: Event
    guard: Guard | None
    to: Place
    sends: tuple[str, ...]


ROWS: tuple[Row, ...] = (
    Row(SUBMITTED, Event.ROUTED, None, WORKING, ("TaskDelegated",)),
    Row(WORKING, Event.ANSWERED, None, COMPLETED, ("TaskCompleted",)),
    Row(WORKING, Event.PROPOSED, None, AWAITS_OUTCOME, ("TaskProposed",)),
    Row(WORKING, Event.SHADOWED, None, AWAITS_OUTCOME, ()),
    Row(WORKING, Event.STOPPED, Guard.NEEDS_DOCUMENT, AWAITS_DOCUMENTS, ("TaskEscalated",)),
    Row(WORKING, Event.STOPPED, Guard.NEEDS_DECISION, AWAITS_OVERRIDE, ("TaskEscalated",)),
    Row(AWAITS_OUTCOME, Event.FAILED, Guard.MAY_RETRY, WORKING, ("TaskDelegated",)),
    Row(AWAITS_OUTCOME, Event.FAILED, Guard.SAME_FAILURE, AWAITS_OVERRIDE, ("TaskEscalated",)),
    Row(AWAITS_OUTCOME, Event.FAILED, Guard.USED_UP, AWAITS_OVERRIDE, ("TaskEscalated",)),
    *(
        Row(at, Event.FAILED, guard, AWAITS_OVERRIDE, ("TaskResumed", "TaskEscalated"))
        for at in ESCALATED
        for guard in (Guard.SAME_FAILURE, Guard.USED_UP)
    ),
    Row(AWAITS_OUTCOME, Event.OUTCOME_DUE, None, COMPLETED, ("TaskCompleted",)),
    Row(AWAITS_DOCUMENTS, Event.REASSESS_DUE, None, AWAITS_DOCUMENTS, ("TaskDelegated",)),
    Row(AWAITS_DOCUMENTS, Event.ROSE, None, WORKING, ("TaskResumed", "TaskDelegated")),
    Row(AWAITS_DOCUMENTS, Event.ANSWERED, None, COMPLETED, ("TaskResumed", "TaskCompleted")),
    Row(AWAITS_DOCUMENTS, Event.PROPOSED, None, AWAITS_OUTCOME, ("TaskResumed", "TaskProposed")),
    Row(AWAITS_DOCUMENTS, Event.SHADOWED, None, AWAITS_OUTCOME, ("TaskResumed",)),
    *(Row(at, Event.SUCCEEDED, None, COMPLETED, ("TaskCompleted",)) for at in LIVE),
    *(Row(at, Event.OVERRIDDEN, None, WORKING, ("TaskDelegated",)) for at in (WORKING, AWAITS_OUTCOME)),
    *(Row(at, Event.OVERRIDDEN, None, WORKING, ("TaskResumed", "TaskDelegated")) for at in ESCALATED),
    *(Row(at, Event.QUIET_DUE, None, COMPLETED, ("TaskCompleted",)) for at in LIVE),
    *(Row(at, Event.AMENDED, None, WORKING, ("TaskDelegated",)) for at in (WORKING, AWAITS_OUTCOME)),
    *(Row(at, Event.AMENDED, None, WORKING, ("TaskResumed", "TaskDelegated")) for at in ESCALATED),
    *(Row(at, Event.DEADLINE_DUE, None, FAILED, ("TaskFailed",)) for at in LIVE),
    *(Row(at, Event.CANCEL, None, CANCELLED, ("TaskCancelled",)) for at in LIVE),
)

_BY_CAUSE = {(row.at, row.event, row.guard): row for row in ROWS}


def transition(at: Place, event: Event, guard: Guard | None = None) -> Row | None:
    """The row for an event, or None when the event is not legal there."""
    return _BY_CAUSE.get((at, event, guard))


def as_markdown() -> str:
    """The table for people: one line per row, in the order of the path of a task."""
    head = "| state | waiting for | event | guard | next state | waiting for | sends |\n|---|---|---|---|---|---|---|\n"
    cells = (
        (
            row.at.state,
            row.at.waiting_for or "",
            row.event,
            row.guard or "",
            row.to.state,
            row.to.waiting_for or "",
            " ".join(row.sends),
        )
        for row in ROWS
    )
    return head + "".join(f"| {' | '.join(line)} |\n" for line in cells)
