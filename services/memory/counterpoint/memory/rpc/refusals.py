"""Refusals: answered, counted, logged, and recorded as leaves of the audit log."""

from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import TypeVar

import asyncpg
import structlog
from prometheus_client import Counter
from pydantic import ValidationError

from counterpoint.memory.access.refusals import problems_of, refusal_of
from counterpoint.memory.commit.committer import Committer
from counterpoint.memory.commit.leaf import refusal
from counterpoint.proto import subjects
from counterpoint.proto.errors import CounterpointError, Denied, ErrorCode, Permanent, Problem, Transient
from counterpoint.proto.memory import Origin, Refusal

log = structlog.get_logger()

T = TypeVar("T")

REFUSALS = Counter("counterpoint_diode_refusals_total", "Refusals by the diode", ["store", "rule"])


class Refusals:
    """Answers requests that fail."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer

    async def unread(self, caller: str, what: str, error: ValidationError) -> Refusal:
        """Refuse a body that is not a request, naming the invalid fields; its leaf is in the default project."""
        refused = Permanent(ErrorCode.INVALID, problems_of(error))
        return await self.of(caller, Origin(message_id="unread", project=subjects.DEFAULT_PROJECT), what, refused)

    async def of(self, caller: str, origin: Origin, what: str, error: CounterpointError) -> Refusal:
        """Return the refusal for an error, and add a leaf to the audit log if a rule refused."""
        match error:
            case Denied(rule=rule, needed=needed):
                REFUSALS.labels(what.split(" ")[0], rule).inc()
                log.warning("diode.refused", caller=caller, what=what, rule=rule, project=origin.project)
            case Permanent(code=rule):
                needed = "; ".join(f"{p.field} {p.problem}" for p in error.problems)
            case _:
                return refusal_of(error)
        leaf = refusal(caller, origin, what, rule, needed, datetime.now(UTC))
        try:
            await self._committer.apply(leaf)
        except Transient as away:
            log.error("refusal.unaudited", rule=rule, reason=str(away))
            return refusal_of(error)
        return refusal_of(error).model_copy(update={"id": leaf.commit_id})


async def mapped(work: Awaitable[T]) -> T:
    """Map an unexpected exception to `Transient`, and a value that the database cannot hold to `Permanent`, so that
    every request gets a reply."""
    try:
        return await work
    except CounterpointError:
        raise
    except asyncpg.DataError as error:
        problem = Problem(
            field="request", problem="contains a value that the database cannot store or search for, such as NUL"
        )
        raise Permanent(ErrorCode.INVALID, (problem,)) from error
    except Exception as error:
        log.error("request.failed", exc_info=error)
        raise Transient(f"unexpected {type(error).__name__}") from error
