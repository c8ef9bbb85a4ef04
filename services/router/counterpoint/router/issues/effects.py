"""Effects at home of what a person did at a forge: outcomes and cancellations, on behalf of the person's principal.

Each has the key of its cause, so that it is committed once however often it is read.
"""

from collections.abc import Awaitable, Callable

import structlog

from counterpoint.client import Memory
from counterpoint.proto import subjects
from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.errors import Conflict, Denied, ErrorCode, Permanent
from counterpoint.proto.ids import derived_id
from counterpoint.proto.memory import Commit, Origin
from counterpoint.proto.principals import Principal
from counterpoint.router.authentication import principal_named
from counterpoint.router.intake.interventions import Reporter, cancellation, outcome

log = structlog.get_logger()
MemoryOf = Callable[[Origin], Memory]
_RUNS = 5


class ForgeEffects:
    """Commits effects. `memory_of` returns memory for an origin."""

    def __init__(self, memory_of: MemoryOf) -> None:
        self._memory_of = memory_of

    async def report(self, project: str, principal: str, cause: str, report: ReportOutcome) -> str | None:
        """Report an outcome; return the reason if it is refused."""

        async def decide(memory: Memory, reporter: Reporter) -> Commit:
            return await outcome(memory, report, reporter, "reported")

        return await self._once(project, principal, cause, decide)

    async def cancel(self, project: str, principal: str, cause: str, task_id: str, reason: str) -> str | None:
        """Cancel a task; return the reason if it is refused."""

        async def decide(memory: Memory, reporter: Reporter) -> Commit:
            return await cancellation(memory, task_id, reason, reporter)

        return await self._once(project, principal, cause, decide)

    async def _once(
        self, project: str, principal: str, cause: str, decide: Callable[[Memory, Reporter], Awaitable[Commit]]
    ) -> str | None:
        message_id = derived_id("forge", project, cause)
        for run in range(_RUNS):
            origin = Origin(message_id=message_id, fence=1, run=run, project=project, principal=principal)
            memory = self._memory_of(origin)
            try:
                known = await self._principal(principal)
                # Who may report the end of a task ends it by closing its issue, too.
                may_cancel = known.may("report", project) or known.may("override", project)
                reporter = Reporter(known.name, known.kind, known.may("read", project), may_cancel)
                await memory.step(await decide(memory, reporter))
            except Conflict:
                continue
            except (Denied, Permanent) as error:
                log.info("issue.refused", project=project, principal=principal, reason=str(error))
                return str(error)
            return None
        raise Conflict("tasks", project)

    async def _principal(self, name: str) -> Principal:
        """Return a principal by its name. Raises `Denied` if it does not exist, is revoked or expired."""
        memory = self._memory_of(
            Origin(message_id=derived_id("forge", name), fence=1, project=subjects.DEFAULT_PROJECT)
        )
        principal = await principal_named(memory, name)
        if principal is None:
            raise Denied(ErrorCode.PRINCIPAL, f"the principal {name}, neither revoked nor expired")
        return principal
