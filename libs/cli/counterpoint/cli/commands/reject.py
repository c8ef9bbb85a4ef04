"""`counterpoint reject`: reject an act."""

from typing import Annotated

import typer

from counterpoint.cli.approval_requests import All, ApprovalId, ApprovalSelection, Sha256Prefix, Yes, decide
from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.approvals import CategoryFilter, TaskFilter
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession


@command("reject", Panel.WORK, 'counterpoint reject APPROVAL --reason "too dear"')
def reject(
    session: CommandSession,
    reason: Annotated[str, typer.Option("--reason", help="The reason.")],
    approval: ApprovalId = None,
    every: All = False,
    category: CategoryFilter = None,
    task: TaskFilter = None,
    sha256: Sha256Prefix = None,
    yes: Yes = False,
) -> Exit | None:
    """Reject an act, as a person."""
    return decide(session, ApprovalSelection(approval, every, category, task, sha256, yes), "rejected", reason)
