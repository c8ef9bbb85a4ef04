"""`counterpoint approvals`: list the approvals that wait for a person."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import Limit
from counterpoint.cli.projects import note_others
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import when

if TYPE_CHECKING:
    from rich.console import RenderableType

STATES = ("pending", "approved", "rejected", "expired", "withdrawn", "applied", "outdated", "all")
CATEGORIES = ("spend", "proposal", "document", "web", "erasure", "take_back")
CategoryFilter = Annotated[str | None, typer.Option("--category", help=f"One of {', '.join(CATEGORIES)}.")]
TaskFilter = Annotated[str | None, typer.Option("--task", metavar="TASK", help="The approvals of one task.")]


@command("approvals", Panel.LOOK, "counterpoint approvals --category spend")
def approvals(
    session: CommandSession,
    state: Annotated[str, typer.Option("--state", help=f"One of {', '.join(STATES)}.")] = "pending",
    category: CategoryFilter = None,
    task: TaskFilter = None,
    limit: Limit = 50,
) -> None:
    """List approvals with the text to approve, by default those that wait for a decision."""
    if state not in STATES:
        raise UsageError(f"a state is one of {', '.join(STATES)}, not {state}")
    check_category(category)
    with session.connect() as api:
        filters = {"state": state, "category": category, "task_id": task, "project": session.project}
        reply = api.pages("/v1/approvals", limit, **filters)
        note_others(session, api, "approvals")

    def human() -> "RenderableType":
        return "\n\n".join(_block(session, one) for one in reply["items"]) or "no approvals"

    session.show(reply, human)


def check_category(category: str | None) -> None:
    """Raise `UsageError` for an unknown category."""
    if category not in (None, *CATEGORIES):
        raise UsageError(f"a category is one of {', '.join(CATEGORIES)}, not {category}")


def describe_approval(approval: dict[str, Any]) -> str:
    """Return the head and the text of an approval, with the hash that binds it."""
    about = f"task {approval['task_id']}" if approval.get("task_id") else f"asked for by {approval['requested_by']}"
    head = f"{approval['approval_id']}  {approval['category']}, {approval['state']}, {about}"
    text = "\n".join(f"  {line}" for line in approval["artifact"].splitlines())
    return f"{head}\n  {approval['summary']}\n{text}\n  sha256 {approval['artifact_sha256']}"


def _block(session: CommandSession, one: dict[str, Any]) -> str:
    lines = [describe_approval(one)]
    if one.get("decided_by"):
        why = f": {one['reason']}" if one.get("reason") else ""
        lines.append(f"  by {one['decided_by']}, {when(one['decided_at'])} UTC{why}")
    elif one["state"] == "pending":
        lines.append(f"  until {when(one['expires_at'])} UTC")
        lines.append(f"  {session.command('approve', one['approval_id'], project=one['project'])}")
        lines.append(f"  {session.command('reject', one['approval_id'], '--reason', 'WHY', project=one['project'])}")
    elif one.get("reason"):
        lines.append(f"  {one['reason']}")
    return "\n".join(lines)
