"""`counterpoint delegation set`: let another person decide approvals for a time."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import CommandSession


@command("set", Panel.WORK, "counterpoint delegation set anna --until 2026-12-24T18:00:00Z")
def set_delegation(
    session: CommandSession,
    to: Annotated[str, typer.Argument(metavar="NAME", help="A person with the role read in the project.")],
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="The end, RFC 3339, within 90 days.")],
) -> None:
    """Let another person decide the approvals of the project in your place, as a person with the role approve."""
    with session.connect() as api:
        made = api.put("/v1/delegations", {"to": to, "until": until}, project=session.project)
    session.show(
        made, lambda: f"{made['to']} decides for {made['by']} in project {made['project']} until {made['until']}"
    )
