"""`counterpoint approve`: approve an act."""

from typing import Annotated

import typer

from counterpoint.cli.approval_requests import ApprovalId, Sha256Prefix, decide
from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession


@command("approve", Panel.WORK, "counterpoint approve APPROVAL")
def approve(
    session: CommandSession,
    approval: ApprovalId,
    sha256: Sha256Prefix = None,
    why: Annotated[str | None, typer.Option("--why", help="The reason.")] = None,
) -> None:
    """Approve an act, as a person. The text of an approval never changes: a changed act has another approval."""
    decide(session, approval, "approved", sha256, why)
