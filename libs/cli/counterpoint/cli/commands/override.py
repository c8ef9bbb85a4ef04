"""`counterpoint override`: override the judgement of the developer."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit
from counterpoint.cli.options import TaskId
from counterpoint.cli.session import CommandSession
from counterpoint.cli.task_requests import read_text, show_receipt


@command("override", Panel.WORK, 'counterpoint override TASK "Check the firewall" --reason "DNS was looked at"')
def override(
    session: CommandSession,
    task: TaskId,
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="The instruction; - reads standard input.")],
    reason: Annotated[str, typer.Option("--reason", help="The reason.")],
    constraint: Annotated[
        list[str] | None, typer.Option("--constraint", help="A constraint on the work; repeatable.")
    ] = None,
    confidence_override: Annotated[
        bool, typer.Option("--confidence-override", help="Continue at any confidence.")
    ] = False,
) -> Exit:
    """Give an instruction that overrides the developer."""
    body = {
        "instruction": read_text(session, text),
        "reasoning": reason,
        "constraints": constraint or [],
        "confidence_override": confidence_override,
    }
    with session.connect() as api:
        reply = api.post(f"/v1/tasks/{task}/override", body, project=session.project)
    return show_receipt(session, reply, f"{task}: continues under the override")
