"""The mapping from an error to the disposition of a delivery."""

from dataclasses import dataclass

from counterpoint.proto.errors import Conflict, CounterpointError, Denied, ErrorCode, Permanent, Problem, Transient

LAST_DELIVERY = 8
"""The delivery at which an unexpected error dead-letters its message; transient errors are retried beyond it."""
DELAYS_S = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Redelivery delays in seconds, by number of the delivery; the last one repeats."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Negatively acknowledge: the server redelivers after `delay_s` seconds."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class MoveToDeadLetters:
    """Dead-letter the message and acknowledge it."""

    code: str
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """Acknowledge without effect: the task has ended."""


@dataclass(frozen=True, slots=True)
class LeaveUnacknowledged:
    """Neither acknowledge nor reject: a newer delivery of the same message is under way."""


Disposition = Retry | MoveToDeadLetters | Drop | LeaveUnacknowledged


def decide(error: BaseException, delivered: int) -> Disposition:
    """Return the disposition of a delivery that failed with `error`; `delivered` counts from 1."""
    delay = DELAYS_S[min(delivered, len(DELAYS_S)) - 1]
    match error:
        case Permanent():
            return MoveToDeadLetters(error.code, error.problems)
        case Denied(rule=ErrorCode.FENCE):
            return LeaveUnacknowledged()
        case Denied(rule=ErrorCode.ENDED):
            return Drop()
        case Denied():
            return MoveToDeadLetters(ErrorCode.DENIED, (Problem(field=error.rule, problem=f"needs {error.needed}"),))
        case Transient():
            return Retry(error.retry_after_s or delay)
        case Conflict():
            return Retry(delay)
        case CounterpointError():
            return MoveToDeadLetters(ErrorCode.REFUSED, (Problem(field="", problem=str(error)),))
        case _ if delivered >= LAST_DELIVERY:
            return MoveToDeadLetters(ErrorCode.UNEXPECTED, (Problem(field="", problem=type(error).__name__),))
        case _:
            return Retry(delay)
