"""`counterpoint delegation remove`: end a delegation."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession


@command("remove", Panel.WORK, "counterpoint delegation remove anna")
def remove(
    session: CommandSession,
    to: Annotated[str, typer.Argument(metavar="NAME", help="The person who decides in your place.")],
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="Whose delegation, as an administrator; default: yours.")
    ] = None,
) -> None:
    """End a delegation, your own or as an administrator that of another."""
    with session.connect() as api:
        ended = api.delete("/v1/delegations", to=to, by=by, project=session.project)
    session.show(ended, lambda: f"{ended['to']} no longer decides for {ended['by']} in project {ended['project']}")
