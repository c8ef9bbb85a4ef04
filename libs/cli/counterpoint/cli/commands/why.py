"""`counterpoint why`: show the reasoning of a task."""

from typing import TYPE_CHECKING

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import AsOf, TaskId
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from rich.console import RenderableType


@command("why", Panel.LOOK, "counterpoint why TASK")
def why(session: CommandSession, task: TaskId, as_of: AsOf = None) -> None:
    """Show the reasoning of a task: its actions, their sources and their results."""
    with session.connect() as api:
        line = api.get(f"/v1/tasks/{task}/line", project=session.project, as_of=as_of)

    def human() -> "RenderableType":
        from counterpoint.cli.render.tree import draw

        return draw(line, session.out.width if session.out.is_terminal else None)

    session.show(line, human)
