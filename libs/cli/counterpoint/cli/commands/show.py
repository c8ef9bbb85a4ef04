"""`counterpoint show`: show a task as a card."""

from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import TaskId
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from rich.console import RenderableType


FORMATS = ("terminal", "markdown", "plain")


@command("show", Panel.LOOK, "counterpoint show TASK")
def show(
    session: CommandSession,
    task: TaskId,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show all details, numbers and searches.")] = False,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="|".join(FORMATS), help="Default: by the output device.")
    ] = None,
) -> None:
    """Show a task as a card: the failure, the findings, the next steps."""
    if format_ is not None and format_ not in FORMATS:
        raise UsageError(f"a format is one of {', '.join(FORMATS)}, not {format_}")
    with session.connect() as api:
        reply = api.get(f"/v1/tasks/{task}", project=session.project)

    def human() -> "RenderableType":
        from counterpoint.card.render import Format, rendered

        return rendered(reply, session.out, verbose=verbose, form=Format(format_) if format_ else None)

    session.show(reply, human)
