"""`counterpoint limit remove`: remove a limit."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.limit.scope import Name, Period, Scope, describe_limit, limit_key, limit_path
from counterpoint.cli.session import CommandSession


@command("remove", Panel.OPERATE, "counterpoint limit remove project --per month")
def remove(session: CommandSession, scope: Scope, name: Name = None, period: Period = "total") -> None:
    """Remove a limit."""
    key = limit_key(scope, name, period)
    with session.connect() as api:
        limit = api.delete(limit_path(scope), **key, project=session.project)
    session.show(limit, lambda: f"removed: {describe_limit(limit)}")
