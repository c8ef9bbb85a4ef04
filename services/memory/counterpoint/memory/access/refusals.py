"""Errors in the form in which callers receive them."""

from pydantic import ValidationError

from counterpoint.proto.errors import (
    Away,
    Conflict,
    CounterpointError,
    Denied,
    ErrorCode,
    Permanent,
    Problem,
    Transient,
)
from counterpoint.proto.memory import Refusal


def problems_of(error: ValidationError) -> tuple[Problem, ...]:
    """Return the problems of a validation error by field; at most twenty."""
    return tuple(Problem(field=".".join(map(str, found["loc"])), problem=found["msg"]) for found in error.errors()[:20])


def refusal_of(error: CounterpointError) -> Refusal:
    """Return an error in the form in which callers receive it."""
    match error:
        case Denied():
            return Refusal(kind="denied", code=error.rule, needed=error.needed)
        case Permanent():
            return Refusal(kind="permanent", code=error.code, problems=error.problems)
        case Conflict():
            return Refusal(kind="conflict", code=ErrorCode.CONFLICT, detail=f"{error.store}/{error.record_id}")
        case Away():
            return Refusal(kind="transient", code=ErrorCode.AWAY, detail=str(error))
        case Transient():
            return Refusal(kind="transient", code=ErrorCode.TRANSIENT, detail=str(error))
        case _:
            return Refusal(kind="permanent", code=ErrorCode.REFUSED, detail=str(error))
