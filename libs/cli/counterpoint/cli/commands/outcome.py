"""`counterpoint outcome`: report the outcome of an attempt."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import ApiError, Exit, UsageError
from counterpoint.cli.options import ErrorFile, TaskId
from counterpoint.cli.session import CommandSession
from counterpoint.cli.task_requests import read_error, show_receipt

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient

OUTCOMES = ("succeeded", "failed", "partial")
CAUSES = ("proposal", "something-else", "nothing")


@command(
    "outcome",
    Panel.WORK,
    'counterpoint outcome TASK succeeded --by something-else --note "Unlocked the user"',
)
def outcome(
    session: CommandSession,
    task: TaskId,
    result: Annotated[str, typer.Argument(metavar="|".join(OUTCOMES), help="The outcome.")],
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="The attempt's number. Default: the latest.")
    ] = None,
    note: Annotated[str | None, typer.Option("--note", help="A description of the fix or the result.")] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="|".join(CAUSES),
            help="Cause of the success: proposal (default), something-else (describe it with --note), "
            "or nothing, it recovered by itself.",
        ),
    ] = None,
    not_same: Annotated[
        list[str] | None,
        typer.Option(
            "--not-same",
            metavar="ATTEMPT",
            help="An earlier attempt that was shown but belongs to a different failure; repeatable.",
        ),
    ] = None,
    error_file: ErrorFile = None,
) -> Exit:
    """Report the outcome of an attempt, and the fix.

    If something other than the proposal helped, add --by something-else --note "WHAT HELPED". The note is then learned
    instead of the proposal.
    """
    if result not in OUTCOMES:
        raise UsageError(f"an outcome is one of {', '.join(OUTCOMES)}, not {result}")
    if by is not None and by.replace("_", "-") not in CAUSES:
        raise UsageError(f"--by is one of {', '.join(CAUSES)}, not {by}")
    body = {
        "outcome": result,
        "attempt": attempt,
        "note": note,
        "by": by.replace("-", "_") if by else None,
        "not_same": not_same or None,
        "error_message": read_error(error_file),
    }
    with session.connect() as api:
        before = _task(api, task, session.project) if result == "succeeded" and by is None else {}
        reply = api.post(f"/v1/tasks/{task}/outcome", body, project=session.project)
    escalated = before.get("state") == "input_required" and before.get("waiting_for") != "outcome"
    hidden = before.get("shadow") and not before.get("override")
    if before and note and not escalated and not hidden:
        session.note(
            "the proposal is credited with the success; if something else helped, report it with --by something-else"
        )
    if not note and (body["by"] == "something_else" or (escalated and not before.get("proposal"))):
        session.note("add --note to record what helped; without it nothing is learned")
    return show_receipt(session, reply, f"{task}: {result}, noted")


def _task(api: "ApiClient", task: str, project: str | None) -> dict[str, Any]:
    """Return the task before the report; nothing if the caller may not read it."""
    try:
        found: dict[str, Any] = api.get(f"/v1/tasks/{task}", project=project)
    except ApiError:
        return {}
    return found
