"""The command that ends a stolen capability before its time."""

import sys
from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Misused
from counterpoint.cli.session import Session

app = typer.Typer()

REVOCATION_ID_CHARS = 128
"""A signature in hex; tokens are longer."""


@command(app, "revoke", Panel.OPERATE, "counterpoint revoke - --reason 'it was in a core dump'")
def revoke(
    session: Session,
    capability: Annotated[
        str, typer.Argument(metavar="CAPABILITY|-", help="The capability, or its revocation id; - reads it.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="Why it counts no more.")],
) -> None:
    """End a capability now, and all that were made from it. For who operates its project."""
    from counterpoint.guard.capabilities import claimed, revocation_ids
    from counterpoint.proto.errors import Denied

    given = (sys.stdin.read() if capability == "-" else capability).strip()
    project, revocation_id = session.project, given
    if len(given) != REVOCATION_ID_CHARS:
        try:
            project, revocation_id = claimed(given).project, revocation_ids(given)[0]
        except Denied as denied:
            raise Misused("give a whole capability, or its revocation id") from denied
    with session.connect() as api:
        said = {"revocation_id": revocation_id, "reason": reason}
        done = api.post("/v1/revocations", said, project=project)
    session.show(done, lambda: f"{revocation_id[:16]}…: refused from now on")
