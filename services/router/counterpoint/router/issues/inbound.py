"""Acts of people at a forge: commands in their comments, and the end of an issue, each as the person's principal."""

import structlog

from counterpoint.proto.attempts import ReportOutcome
from counterpoint.proto.tasks import Task
from counterpoint.router.issues.commands import outcome_in
from counterpoint.router.issues.effects import ForgeEffects
from counterpoint.router.issues.forge import ForgeComment
from counterpoint.router.issues.sync import Comparison
from counterpoint.router.issues.texts import inert
from counterpoint.router.issues.trackers import Tracker

log = structlog.get_logger()


async def act_on(effects: ForgeEffects, tracker: Tracker, task: Task, found: Comparison) -> dict[str, str]:
    """Commit what people did; return the comments that say why something was refused, by their purposes.

    What a person without a principal did has no effect.
    """
    replies = dict[str, str]()
    succeeded = False
    for comment in found.said:
        report = outcome_in(comment.body, task.task_id)
        if report is None:
            continue
        refused = await _report(effects, tracker, task, comment, report)
        succeeded = succeeded or (refused is None and report.outcome == "succeeded")
        if refused:
            replies[f"reply-{comment.id}"] = _refusal("The outcome", refused)
    if found.closed and not succeeded:
        version = found.progress.fields.state_version
        refused = await _close(effects, tracker, task, found, f"{tracker.name}/closed/{task.task_id}/{version}")
        if refused:
            replies[f"closed-{version}"] = _refusal("The end of this issue", refused)
    return replies


async def _report(
    effects: ForgeEffects, tracker: Tracker, task: Task, comment: ForgeComment, report: ReportOutcome
) -> str | None:
    """Report the outcome in a comment; return the reason if it is refused, empty for a person without a principal."""
    principal = tracker.principal_of(comment.author)
    if principal is None:
        log.info("issue.comment_ignored", tracker=tracker.name, task_id=task.task_id, comment=comment.id)
        return ""
    return await effects.report(task.project, principal, f"{tracker.name}/comment/{comment.id}", report)


async def _close(effects: ForgeEffects, tracker: Tracker, task: Task, found: Comparison, cause: str) -> str | None:
    """End the task of an issue that a person has closed: resolved by something that nobody has named, or cancelled."""
    principal = tracker.principal_of(found.closed_by)
    if principal is None:
        log.info("issue.closing_ignored", tracker=tracker.name, task_id=task.task_id)
        return None
    if found.planned_off:
        reason = f"its issue {found.progress.number} was closed as not planned"
        return await effects.cancel(task.project, principal, cause, task.task_id, reason)
    report = ReportOutcome(task_id=task.task_id, outcome="succeeded", by="something_else")
    return await effects.report(task.project, principal, cause, report)


def _refusal(what: str, reason: str) -> str:
    return f"{what} was not taken over: {inert(reason)}"
