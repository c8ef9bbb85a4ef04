"""From an error to what is done with a delivery: a pure decision."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.bus.delivery import (
    DELAYS_S,
    LAST_DELIVERY,
    Drop,
    LeaveUnacknowledged,
    MoveToDeadLetters,
    Retry,
    decide,
)
from counterpoint.proto.errors import Away, Conflict, CounterpointError, Denied, Permanent, Problem, Transient

PROBLEM = Problem(field="a", problem="b")
ERRORS = (
    Transient("busy"),
    Away("gone"),
    Permanent("invalid"),
    Denied("fence"),
    Denied("ended"),
    Denied("store", "x"),
    Conflict("tasks", "t", 1, 2),
    CounterpointError("odd"),
    KeyError("k"),
)


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        (Permanent("invalid", (PROBLEM,)), MoveToDeadLetters("invalid", (PROBLEM,))),
        (Denied("fence"), LeaveUnacknowledged()),
        (Denied("ended"), Drop()),
        (
            Denied("store", "the right to read x"),
            MoveToDeadLetters("denied", (Problem(field="store", problem="needs the right to read x"),)),
        ),
        (Transient("busy", retry_after_s=0.7), Retry(0.7)),
        (Away("memory"), Retry(DELAYS_S[0])),
        (Conflict("tasks", "t", 1, 2), Retry(DELAYS_S[0])),
        (CounterpointError("odd"), MoveToDeadLetters("refused", (Problem(field="", problem="odd"),))),
        (KeyError("k"), Retry(DELAYS_S[0])),
    ],
)
def test_each_error_has_one_verdict(error: Exception, verdict: object) -> None:
    assert decide(error, 1) == verdict


def test_an_unexpected_error_is_dead_at_the_last_delivery_without_its_text() -> None:
    assert isinstance(decide(KeyError("secret"), LAST_DELIVERY - 1), Retry)
    assert decide(KeyError("secret"), LAST_DELIVERY) == MoveToDeadLetters(
        "unexpected", (Problem(field="", problem="KeyError"),)
    )


@given(st.sampled_from(ERRORS), st.integers(1, 10_000))
def test_every_retry_has_a_delay(error: Exception, delivered: int) -> None:
    verdict = decide(error, delivered)
    if isinstance(verdict, Retry):
        assert verdict.delay_s >= DELAYS_S[0]


@given(st.integers(1, 10_000))
def test_a_passing_fault_is_never_buried(delivered: int) -> None:
    assert isinstance(decide(Transient("busy"), delivered), Retry)
    assert isinstance(decide(Conflict("tasks", "t", 1, 2), delivered), Retry)
