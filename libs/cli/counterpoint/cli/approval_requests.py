"""The request of a decision on an approval."""

from typing import Annotated, Literal

import typer

from counterpoint.cli.commands.approvals import describe_approval
from counterpoint.cli.errors import CommandError
from counterpoint.cli.options import check_id
from counterpoint.cli.session import CommandSession

ApprovalId = Annotated[str, typer.Argument(metavar="APPROVAL", help="The approval's id.", callback=check_id)]
Sha256Prefix = Annotated[
    str | None, typer.Option("--sha256", help="Refuse unless the hash of the text begins with this.")
]


def decide(
    session: CommandSession,
    approval: str,
    decision: Literal["approved", "rejected"],
    sha256: str | None,
    why: str | None,
) -> None:
    """Read an approval, send the decision with the hash of its text, and show both. Raises CommandError."""
    path = f"/v1/approvals/{approval}"
    with session.connect() as api:
        shown = api.get(path, project=session.project)
        if sha256 is not None and not shown["artifact_sha256"].startswith(sha256.lower()):
            raise CommandError(f"the hash of the text is {shown['artifact_sha256']}, not {sha256}")
        body = {"decision": decision, "artifact_sha256": shown["artifact_sha256"], "reason": why}
        reply = api.post(path, body, project=session.project)
    session.show(reply, lambda: f"{describe_approval(reply)}\n{decision}")
