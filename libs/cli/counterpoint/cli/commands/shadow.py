"""`counterpoint shadow`: report the proposals made in shadow."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.incident_settings import _shadow_report
from counterpoint.cli.session import CommandSession


@command("shadow", Panel.LOOK, "counterpoint shadow --project orders")
def shadow(session: CommandSession) -> None:
    """Show the proposals made in shadow, and how many would have been right."""
    with session.connect() as api:
        report = api.get("/v1/shadow", project=session.project)
    session.show(report, lambda: _shadow_report(report))
