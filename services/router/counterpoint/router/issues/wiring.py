"""Registration of the handlers of issue synchronization. HTTP clients are loaded only if a tracker is configured."""

from typing import TYPE_CHECKING

from counterpoint.bus import Service
from counterpoint.client import Memory, delete
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.issues import IssueDue, TrackerDue
from counterpoint.proto.memory import Commit
from counterpoint.router.finished_messages import FinishedMessages
from counterpoint.router.issues.synced_issue import STORE, poll_id
from counterpoint.router.issues.trackers import load_trackers
from counterpoint.router.settings import RouterSettings

if TYPE_CHECKING:
    from counterpoint.router.issues.handlers import IssueSync


def attach(service: Service, settings: RouterSettings, finished: FinishedMessages) -> "IssueSync | None":
    """Handle what is due, and return what plans comparisons, None without a tracker.

    Raises `TrackerError` for trackers that are not configured correctly.
    """
    trackers = load_trackers(settings.issues_file)
    if not trackers:
        service.on(IssueDue)(finished.of(_refuse))
        service.on(TrackerDue)(finished.of(_end_polls))
        return None
    from counterpoint.router.issues.effects import ForgeEffects
    from counterpoint.router.issues.handlers import IssueSync

    issues = IssueSync(trackers, settings.issues_timeout_s, ForgeEffects(service.memory_for))
    service.on(IssueDue)(finished.of(issues.on_due))
    service.on(TrackerDue)(finished.of(issues.polls.on_due))
    return issues


async def _refuse(message: IssueDue, memory: Memory) -> Commit:
    """Dead-letter the work of an earlier configuration, so that it can be retried under another."""
    problem = Problem(field=message.issue_id, problem="has no tracker: none is configured")
    raise Permanent(ErrorCode.REFUSED, (problem,))


async def _end_polls(message: TrackerDue, memory: Memory) -> Commit:
    """End the polls of an earlier configuration; an event begins them under another."""
    item = await memory.get(STORE, poll_id(message.tracker))
    return Commit(writes=(delete(item),) if item else ())
