"""`counterpoint principal revoke`: revoke a principal."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession


@command("revoke", Panel.OPERATE, "counterpoint principal revoke airflow")
def revoke(
    session: CommandSession, name: Annotated[str, typer.Argument(metavar="NAME", help="The principal's name.")]
) -> None:
    """Revoke a principal permanently."""
    with session.connect() as api:
        reply = api.delete(f"/v1/principals/{name}")
    session.show(reply or {"name": name, "revoked": True}, lambda: f"{name}: revoked")
