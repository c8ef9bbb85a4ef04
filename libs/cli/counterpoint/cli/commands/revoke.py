"""`counterpoint revoke`: revoke a capability."""

import sys
from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.session import CommandSession

REVOCATION_ID_CHARS = 128
"""A signature in hex; tokens are longer."""


@command("revoke", Panel.OPERATE, "counterpoint revoke - --reason 'it was in a core dump'")
def revoke(
    session: CommandSession,
    capability: Annotated[
        str,
        typer.Argument(metavar="CAPABILITY|-", help="The capability, or its revocation id; - reads standard input."),
    ],
    reason: Annotated[str, typer.Option("--reason", help="The reason.")],
) -> None:
    """Revoke a capability and all that were derived from it. Needs the role operate."""
    from counterpoint.guard.capabilities import revocation_ids, unverified_grant
    from counterpoint.proto.errors import Denied

    given = (sys.stdin.read() if capability == "-" else capability).strip()
    project, revocation_id = session.project, given
    if len(given) != REVOCATION_ID_CHARS:
        try:
            project, revocation_id = unverified_grant(given).project, revocation_ids(given)[0]
        except Denied as denied:
            raise UsageError("give a whole capability, or its revocation id") from denied
    with session.connect() as api:
        body = {"revocation_id": revocation_id, "reason": reason}
        reply = api.post("/v1/revocations", body, project=project)
    session.show(reply, lambda: f"{revocation_id[:16]}…: revoked")
