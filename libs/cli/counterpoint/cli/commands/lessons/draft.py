"""`counterpoint lessons draft`: draft a postmortem or a runbook section from an incident."""

from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import CommandError, UsageError
from counterpoint.cli.options import TaskId
from counterpoint.cli.session import CommandSession


@command("draft", Panel.WORK, "counterpoint lessons draft TASK --runbook -o runbooks/draft.md")
def draft_(
    session: CommandSession,
    task: TaskId,
    postmortem: Annotated[bool, typer.Option("--postmortem", help="A postmortem. The default.")] = False,
    runbook: Annotated[bool, typer.Option("--runbook", help="A section of a runbook.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="A new file. Default: standard output.")
    ] = None,
) -> None:
    """Draft a postmortem or a runbook section from an incident.

    The draft quotes the records of the incident and marks what they do not hold. Nothing is made up. While the task
    has not ended, the draft says so.
    """
    if postmortem and runbook:
        raise UsageError("--postmortem and --runbook exclude each other")
    form = "runbook" if runbook else "postmortem"
    with session.connect() as api:
        text = str(api.get(f"/v1/tasks/{task}/draft", form=form, project=session.project)["markdown"])
    if output is not None:
        _write(output, text)
    report = {"task_id": task, "form": form, "file": str(output) if output else None, "markdown": text}
    session.show(
        {name: value for name, value in report.items() if value is not None},
        lambda: f"written to {output}" if output else text.rstrip("\n"),
    )


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError as error:
        raise CommandError(f"{path} exists; name a new file") from error
