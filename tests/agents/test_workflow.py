"""The table of the workflow: complete, without contradictions, and every state has a way to an end."""

from typing import get_args

import pytest

from counterpoint.manager.workflow import (
    AWAITS_DOCUMENTS,
    AWAITS_OUTCOME,
    LIVE,
    SUBMITTED,
    TRANSITIONS,
    WORKING,
    TransitionGuard,
    WorkflowEvent,
    WorkflowState,
    as_markdown,
    transition,
)
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import ENDED, State

PLACES = {SUBMITTED, *LIVE, *(row.to for row in TRANSITIONS)}


def test_a_state_an_event_and_a_guard_have_one_row() -> None:
    causes = [(row.at, row.event, row.guard) for row in TRANSITIONS]
    assert len(causes) == len(set(causes))
    for row in TRANSITIONS:
        guards = {other.guard for other in TRANSITIONS if (other.at, other.event) == (row.at, row.event)}
        assert None not in guards or guards == {None}


def test_every_state_of_the_contract_is_in_the_table() -> None:
    assert {place.state for place in PLACES} == set(get_args(State))


def test_every_state_is_reached_from_the_first_and_reaches_an_end() -> None:
    def reached(start: WorkflowState) -> set[WorkflowState]:
        seen = {start}
        while more := {row.to for row in TRANSITIONS if row.at in seen} - seen:
            seen |= more
        return seen

    assert reached(SUBMITTED) == PLACES
    for place in PLACES:
        assert any(end.ended for end in reached(place)), place


@pytest.mark.parametrize("place", sorted(place for place in PLACES if place.ended))
def test_an_end_state_has_no_transition(place: WorkflowState) -> None:
    assert place.state in ENDED
    assert all(transition(place, event, guard) is None for event in WorkflowEvent for guard in (None, *TransitionGuard))


@pytest.mark.parametrize("place", LIVE)
@pytest.mark.parametrize(
    "event", [WorkflowEvent.CANCEL, WorkflowEvent.DEADLINE_DUE, WorkflowEvent.SUCCEEDED, WorkflowEvent.OVERRIDDEN]
)
def test_these_events_are_legal_in_every_live_state(place: WorkflowState, event: WorkflowEvent) -> None:
    assert transition(place, event) is not None


@pytest.mark.parametrize(
    ("place", "event"),
    [
        (SUBMITTED, WorkflowEvent.ANSWERED),
        (SUBMITTED, WorkflowEvent.CANCEL),
        (WORKING, WorkflowEvent.ROUTED),
        (WORKING, WorkflowEvent.FAILED),
        (WORKING, WorkflowEvent.OUTCOME_DUE),
        (WORKING, WorkflowEvent.ROSE),
        (AWAITS_OUTCOME, WorkflowEvent.ANSWERED),
        (AWAITS_OUTCOME, WorkflowEvent.REASSESS_DUE),
        (AWAITS_DOCUMENTS, WorkflowEvent.STOPPED),
    ],
)
def test_illegal_transitions_are_refused(place: WorkflowState, event: WorkflowEvent) -> None:
    assert all(transition(place, event, guard) is None for guard in (None, *TransitionGuard))


def test_the_rows_send_messages_that_exist() -> None:
    known = {message.__name__ for message in Message.register.values()}
    assert {name for row in TRANSITIONS for name in row.sends} <= known


def test_the_table_for_people_has_every_row() -> None:
    lines = as_markdown().splitlines()
    assert len(lines) == len(TRANSITIONS) + 2
    assert lines[0] == "| state | waiting for | event | guard | next state | waiting for | sends |"
    assert "| submitted |  | routed |  | working |  | TaskDelegated |" in lines
    assert all(line.count("|") == 8 for line in lines)
