"""The workflow of a task as a table of transitions by state and event (docs/workflow.md).

An event without a transition has no effect and is noted on the line of the task.
"""

from enum import StrEnum
from typing import NamedTuple

from counterpoint.proto.tasks import ENDED, State, WaitingFor


class WorkflowEvent(StrEnum):
    """Event in the workflow of a task."""

    ROUTED = "routed"
    ANSWERED = "worked: answered"
    PROPOSED = "worked: proposed"
    SHADOWED = "worked: proposed in shadow"
    OVER_LIMIT = "worked: a limit refused a call"
    HELD = "worked: proposed, needs an approval"
    LIFTED = "approval: limits lifted or search permitted"
    CHANGED = "approval: its subject has changed"
    NOT_APPROVED = "approval: the proposal is rejected or expired"
    STOPPED = "worked: stopped"
    RETURNED = "worked: returned by the reviewer"
    ROSE = "worked: confidence rose"
    SUCCEEDED = "outcome: succeeded"
    FAILED = "outcome: failed or partial"
    OVERRIDDEN = "overridden"
    AMENDED = "amended"
    REASSESS_DUE = "due: reassess"
    OUTCOME_DUE = "due: outcome"
    DEADLINE_DUE = "due: deadline"
    QUIET_DUE = "due: quiet"
    LINKED = "linked or split"
    TAKEN_OVER = "the calling LLM takes over"
    CANCEL = "cancel"


class TransitionGuard(StrEnum):
    """Condition that selects between transitions of one state and event."""

    NEEDS_DOCUMENT = "a document is needed"
    NEEDS_DECISION = "no document would help"
    MAY_RETRY = "another attempt is allowed"
    SAME_FAILURE = "the same error signature has failed too often"
    USED_UP = "all attempts are used up"


class WorkflowState(NamedTuple):
    """State of a task, and the input it waits for. A task without a record is `SUBMITTED`."""

    state: State
    waiting_for: WaitingFor | None = None

    @property
    def ended(self) -> bool:
        """Whether the task has ended."""
        return self.state in ENDED


SUBMITTED = WorkflowState("submitted")
WORKING = WorkflowState("working")
AWAITS_OUTCOME = WorkflowState("input_required", "outcome")
AWAITS_DOCUMENTS = WorkflowState("input_required", "documents")
AWAITS_OVERRIDE = WorkflowState("input_required", "override")
AWAITS_APPROVAL = WorkflowState("input_required", "approval")
COMPLETED = WorkflowState("completed")
FAILED = WorkflowState("failed")
CANCELLED = WorkflowState("cancelled")

LIVE = (WORKING, AWAITS_OUTCOME, AWAITS_DOCUMENTS, AWAITS_OVERRIDE, AWAITS_APPROVAL)
ESCALATED = (AWAITS_DOCUMENTS, AWAITS_OVERRIDE, AWAITS_APPROVAL)


class Transition(NamedTuple):
    """One transition, with the messages it sends."""

    at: WorkflowState
    event: WorkflowEvent
    guard: TransitionGuard | None
    to: WorkflowState
    sends: tuple[str, ...]


TRANSITIONS: tuple[Transition, ...] = (
    Transition(SUBMITTED, WorkflowEvent.ROUTED, None, WORKING, ("TaskDelegated",)),
    Transition(WORKING, WorkflowEvent.ANSWERED, None, COMPLETED, ("TaskCompleted",)),
    Transition(WORKING, WorkflowEvent.PROPOSED, None, AWAITS_OUTCOME, ("TaskProposed",)),
    Transition(WORKING, WorkflowEvent.SHADOWED, None, AWAITS_OUTCOME, ()),
    Transition(WORKING, WorkflowEvent.RETURNED, None, WORKING, ("TaskDelegated",)),
    Transition(WORKING, WorkflowEvent.STOPPED, TransitionGuard.NEEDS_DOCUMENT, AWAITS_DOCUMENTS, ("TaskEscalated",)),
    Transition(WORKING, WorkflowEvent.STOPPED, TransitionGuard.NEEDS_DECISION, AWAITS_OVERRIDE, ("TaskEscalated",)),
    Transition(AWAITS_OUTCOME, WorkflowEvent.FAILED, TransitionGuard.MAY_RETRY, WORKING, ("TaskDelegated",)),
    Transition(AWAITS_OUTCOME, WorkflowEvent.FAILED, TransitionGuard.SAME_FAILURE, AWAITS_OVERRIDE, ("TaskEscalated",)),
    Transition(AWAITS_OUTCOME, WorkflowEvent.FAILED, TransitionGuard.USED_UP, AWAITS_OVERRIDE, ("TaskEscalated",)),
    Transition(AWAITS_DOCUMENTS, WorkflowEvent.FAILED, TransitionGuard.MAY_RETRY, AWAITS_DOCUMENTS, ()),
    *(
        Transition(at, WorkflowEvent.FAILED, guard, AWAITS_OVERRIDE, ("TaskResumed", "TaskEscalated"))
        for at in ESCALATED
        for guard in (TransitionGuard.SAME_FAILURE, TransitionGuard.USED_UP)
    ),
    Transition(AWAITS_OUTCOME, WorkflowEvent.OUTCOME_DUE, None, COMPLETED, ("TaskCompleted",)),
    Transition(AWAITS_DOCUMENTS, WorkflowEvent.REASSESS_DUE, None, AWAITS_DOCUMENTS, ("TaskDelegated",)),
    Transition(AWAITS_DOCUMENTS, WorkflowEvent.ROSE, None, WORKING, ("TaskResumed", "TaskDelegated")),
    Transition(AWAITS_DOCUMENTS, WorkflowEvent.ANSWERED, None, COMPLETED, ("TaskResumed", "TaskCompleted")),
    Transition(AWAITS_DOCUMENTS, WorkflowEvent.PROPOSED, None, AWAITS_OUTCOME, ("TaskResumed", "TaskProposed")),
    Transition(AWAITS_DOCUMENTS, WorkflowEvent.SHADOWED, None, AWAITS_OUTCOME, ("TaskResumed",)),
    Transition(WORKING, WorkflowEvent.OVER_LIMIT, None, AWAITS_APPROVAL, ("ApprovalRequested", "TaskEscalated")),
    Transition(WORKING, WorkflowEvent.HELD, None, AWAITS_APPROVAL, ("ApprovalRequested",)),
    Transition(
        AWAITS_DOCUMENTS,
        WorkflowEvent.OVER_LIMIT,
        None,
        AWAITS_APPROVAL,
        ("TaskResumed", "ApprovalRequested", "TaskEscalated"),
    ),
    Transition(AWAITS_DOCUMENTS, WorkflowEvent.HELD, None, AWAITS_APPROVAL, ("TaskResumed", "ApprovalRequested")),
    Transition(AWAITS_APPROVAL, WorkflowEvent.HELD, None, AWAITS_APPROVAL, ("TaskResumed", "ApprovalRequested")),
    Transition(AWAITS_APPROVAL, WorkflowEvent.LIFTED, None, WORKING, ("TaskResumed", "TaskDelegated")),
    Transition(AWAITS_APPROVAL, WorkflowEvent.CHANGED, None, AWAITS_APPROVAL, ("ApprovalRequested",)),
    Transition(AWAITS_APPROVAL, WorkflowEvent.NOT_APPROVED, None, AWAITS_OVERRIDE, ("TaskResumed", "TaskEscalated")),
    Transition(AWAITS_APPROVAL, WorkflowEvent.ANSWERED, None, COMPLETED, ("TaskResumed", "TaskCompleted")),
    Transition(AWAITS_APPROVAL, WorkflowEvent.PROPOSED, None, AWAITS_OUTCOME, ("TaskResumed", "TaskProposed")),
    Transition(AWAITS_APPROVAL, WorkflowEvent.SHADOWED, None, AWAITS_OUTCOME, ("TaskResumed",)),
    *(
        Transition(AWAITS_APPROVAL, WorkflowEvent.STOPPED, guard, to, ("TaskResumed", "TaskEscalated"))
        for guard, to in (
            (TransitionGuard.NEEDS_DOCUMENT, AWAITS_DOCUMENTS),
            (TransitionGuard.NEEDS_DECISION, AWAITS_OVERRIDE),
        )
    ),
    *(Transition(at, WorkflowEvent.SUCCEEDED, None, COMPLETED, ("TaskCompleted",)) for at in LIVE),
    *(Transition(at, WorkflowEvent.OVERRIDDEN, None, WORKING, ("TaskDelegated",)) for at in (WORKING, AWAITS_OUTCOME)),
    *(Transition(at, WorkflowEvent.OVERRIDDEN, None, WORKING, ("TaskResumed", "TaskDelegated")) for at in ESCALATED),
    *(Transition(at, WorkflowEvent.QUIET_DUE, None, COMPLETED, ("TaskCompleted",)) for at in LIVE),
    *(Transition(at, WorkflowEvent.AMENDED, None, WORKING, ("TaskDelegated",)) for at in (WORKING, AWAITS_OUTCOME)),
    *(Transition(at, WorkflowEvent.AMENDED, None, WORKING, ("TaskResumed", "TaskDelegated")) for at in ESCALATED),
    Transition(AWAITS_OUTCOME, WorkflowEvent.LINKED, None, WORKING, ("TaskDelegated",)),
    *(Transition(at, WorkflowEvent.LINKED, None, WORKING, ("TaskResumed", "TaskDelegated")) for at in ESCALATED),
    *(
        Transition(at, WorkflowEvent.TAKEN_OVER, None, AWAITS_OVERRIDE, ("TaskEscalated",))
        for at in (WORKING, AWAITS_OUTCOME)
    ),
    *(
        Transition(at, WorkflowEvent.TAKEN_OVER, None, AWAITS_OVERRIDE, ("TaskResumed", "TaskEscalated"))
        for at in ESCALATED
    ),
    *(Transition(at, WorkflowEvent.DEADLINE_DUE, None, FAILED, ("TaskFailed",)) for at in LIVE),
    *(Transition(at, WorkflowEvent.CANCEL, None, CANCELLED, ("TaskCancelled",)) for at in LIVE),
)

_BY_CAUSE = {(row.at, row.event, row.guard): row for row in TRANSITIONS}


def transition(at: WorkflowState, event: WorkflowEvent, guard: TransitionGuard | None = None) -> Transition | None:
    """Return the transition for an event, or None when the event is not allowed in the state."""
    return _BY_CAUSE.get((at, event, guard))


def as_markdown() -> str:
    """Render the table as Markdown, one line per transition."""
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
        for row in TRANSITIONS
    )
    return head + "".join(f"| {' | '.join(line)} |\n" for line in cells)
