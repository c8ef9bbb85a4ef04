"""The table of the workflow: complete, without contradictions, and every state has a way to an end."""

from typing import get_args

import pytest

from counterpoint.manager.workflow import (
    AWAITS_DOCUMENTS,
    AWAITS_OUTCOME,
    LIVE,
    ROWS,
    SUBMITTED,
    WORKING,
    Event,
    Guard,
    Place,
    as_markdown,
    transition,
)
from counterpoint.proto.messages import Message
from counterpoint.proto.tasks import ENDED, State

PLACES = {SUBMITTED, *LIVE, *(row.to for row in ROWS)}


def test_a_state_an_event_and_a_guard_have_one_row() -> None:
    causes = [(row.at, row.event, row.guard) for row in ROWS]
    assert len(causes) == len(set(causes))
    for row in ROWS:
        guards = {other.guard for other in ROWS if (other.at, other.event) == (row.at, row.event)}
        assert None not in guards or guards == {None}


def test_every_state_of_the_contract_is_in_the_table() -> None:
    assert {place.state for place in PLACES} == set(get_args(State))


def test_every_state_is_reached_from_the_first_and_reaches_an_end() -> None:
    def reached(start: Place) -> set[Place]:
        seen = {start}
        while more := {row.to for row in ROWS if row.at in seen} - seen:
            seen |= more
        return seen

    assert reached(SUBMITTED) == PLACES
    for place in PLACES:
        assert any(end.ended for end in reached(place)), place


@pytest.mark.parametrize("place", sorted(place for place in PLACES if place.ended))
def test_nothing_leads_out_of_an_end(place: Place) -> None:
    assert place.state in ENDED
    assert all(transition(place, event, guard) is None for event in Event for guard in (None, *Guard))


@pytest.mark.parametrize("place", LIVE)
@pytest.mark.parametrize("event", [Event.CANCEL, Event.DEADLINE_DUE, Event.SUCCEEDED, Event.OVERRIDDEN])
def test_what_is_legal_in_every_live_state(place: Place, event: Event) -> None:
    assert transition(place, event) is not None


@pytest.mark.parametrize(
    ("place", "event"),
    [
        (SUBMITTED, Event.ANSWERED),
        (SUBMITTED, Event.CANCEL),
        (WORKING, Event.ROUTED),
        (WORKING, Event.FAILED),
        (WORKING, Event.OUTCOME_DUE),
        (WORKING, Event.ROSE),
        (AWAITS_OUTCOME, Event.ANSWERED),
        (AWAITS_OUTCOME, Event.REASSESS_DUE),
        (AWAITS_DOCUMENTS, Event.STOPPED),
    ],
)
def test_illegal_transitions_are_refused(place: Place, event: Event) -> None:
    assert all(transition(place, event, guard) is None for guard in (None, *Guard))


def test_the_rows_send_messages_that_exist() -> None:
    known = {message.__name__ for message in Message.register.values()}
    assert {name for row in ROWS for name in row.sends} <= known


def test_the_table_for_people_has_every_row() -> None:
    lines = as_markdown().splitlines()
    assert len(lines) == len(ROWS) + 2
    assert lines[0] == "| state | waiting for | event | guard | next state | waiting for | sends |"
    assert "| submitted |  | routed |  | working |  | TaskDelegated |" in lines
    assert all(line.count("|") == 8 for line in lines)
