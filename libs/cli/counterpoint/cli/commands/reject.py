"""`counterpoint reject`: reject an act."""

from typing import Annotated

import typer

from counterpoint.cli.approval_requests import ApprovalId, Sha256Prefix, decide
from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession


@command("reject", Panel.WORK, 'counterpoint reject APPROVAL --why "too dear"')
def reject(
    session: CommandSession,
    approval: ApprovalId,
    why: Annotated[str, typer.Option("--why", help="The reason.")],
    sha256: Sha256Prefix = None,
) -> None:
    """Reject an act, as a person."""
    decide(session, approval, "rejected", sha256, why)
