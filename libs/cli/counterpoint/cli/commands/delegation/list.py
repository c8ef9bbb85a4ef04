"""`counterpoint delegation list`: list who decides approvals in whose place."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import when


@command("list", Panel.WORK, "counterpoint delegation list")
def list_delegations(session: CommandSession) -> None:
    """List the persons who decide approvals of the project in the place of another."""
    with session.connect() as api:
        reply = api.get("/v1/delegations", project=session.project)
    rows = [(one["to"], one["by"], f"{when(one['until'])} UTC") for one in reply["items"]]
    session.show(reply, lambda: table(("decides", "for", "until"), rows, "no delegations"))
