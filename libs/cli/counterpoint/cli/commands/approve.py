"""`counterpoint approve`: approve an act."""

from typing import Annotated

import typer

from counterpoint.cli.approval_requests import All, ApprovalId, ApprovalSelection, Sha256Prefix, Yes, decide
from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.approvals import CategoryFilter, TaskFilter
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession


@command("approve", Panel.WORK, "counterpoint approve APPROVAL")
def approve(
    session: CommandSession,
    approval: ApprovalId = None,
    every: All = False,
    category: CategoryFilter = None,
    task: TaskFilter = None,
    sha256: Sha256Prefix = None,
    reason: Annotated[str | None, typer.Option("--reason", help="The reason.")] = None,
    yes: Yes = False,
) -> Exit | None:
    """Approve an act, as a person. The text of an approval never changes: a changed act has another approval."""
    return decide(session, ApprovalSelection(approval, every, category, task, sha256, yes), "approved", reason)
