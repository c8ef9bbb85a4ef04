"""`counterpoint limit list`: list the limits and what was used of them."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.projects import note_others
from counterpoint.cli.render.limits import limits_table
from counterpoint.cli.session import CommandSession


@command("list", Panel.OPERATE, "counterpoint limit list")
def list_limits(session: CommandSession) -> None:
    """List the limits of the project and of the organisation, and what was used of each in the present day, month or in
    all.
    """
    with session.connect() as api:
        reply = api.get("/v1/limits", project=session.project)
        note_others(session, api, "limit list")
    session.show(reply, lambda: limits_table(reply["items"]))
