"""The one place where an error becomes a decision about a delivery."""

from dataclasses import dataclass

from counterpoint.proto.errors import Conflict, CounterpointError, Denied, Permanent, Problem, Transient

LAST_DELIVERY = 8
"""An error that nobody foresaw is tried this often; transient ones for as long as the consumer delivers."""
DELAYS_S = (0.1, 0.5, 1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class Retry:
    """Hand it back and have it again after `delay_s`."""

    delay_s: float


@dataclass(frozen=True, slots=True)
class Bury:
    """Dead-letter it."""

    code: str
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Drop:
    """Acknowledge it: the task is over."""


@dataclass(frozen=True, slots=True)
class Leave:
    """Neither: a newer delivery of the same message is under way, and ends it."""


def decide(error: BaseException, delivered: int) -> Retry | Bury | Drop | Leave:
    """What to do with a delivery that failed with `error`, the `delivered`-th of its message, counted from 1."""
    delay = DELAYS_S[min(delivered, len(DELAYS_S)) - 1]
    match error:
        case Permanent():
            return Bury(error.code, error.problems)
        case Denied(rule="fence"):
            return Leave()
        case Denied(rule="ended"):
            return Drop()
        case Denied():
            return Bury("denied", (Problem(field=error.rule, problem=f"needs {error.needed}"),))
        case Transient():
            return Retry(error.retry_after_s or delay)
        case Conflict():
            return Retry(delay)
        case CounterpointError():
            return Bury("refused", (Problem(field="", problem=str(error)),))
        case _ if delivered >= LAST_DELIVERY:
            return Bury("unexpected", (Problem(field="", problem=type(error).__name__),))
        case _:
            return Retry(delay)
