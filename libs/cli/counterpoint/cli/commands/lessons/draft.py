"""`counterpoint lessons draft`: draft a postmortem or a runbook section from an incident."""

from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import CommandError, UsageError
from counterpoint.cli.options import TaskId
from counterpoint.cli.session import CommandSession

_ATTEMPTS = 1000


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
    """Draft a postmortem or a runbook section from an incident that has ended.

    The draft quotes the records of the incident and marks what they do not hold. Nothing is made up.
    """
    if postmortem and runbook:
        raise UsageError("--postmortem and --runbook exclude each other")
    from counterpoint.card.draft import DraftForm, IncidentRecords, draft
    from counterpoint.proto.attempts import Attempt
    from counterpoint.proto.line import Action
    from counterpoint.proto.tasks import ENDED, Task

    with session.connect() as api:
        shown = Task.model_validate(api.get(f"/v1/tasks/{task}", project=session.project))
        if shown.state not in ENDED:
            raise CommandError(f"{task} has not ended: its state is {shown.state}")
        line = api.get(f"/v1/tasks/{task}/line", project=session.project)["items"]
        tried = api.pages("/v1/attempts", _ATTEMPTS, task_id=task, project=session.project)["items"]
    records = IncidentRecords(shown, tuple(map(Attempt.model_validate, tried)), tuple(map(Action.model_validate, line)))
    form = DraftForm.RUNBOOK if runbook else DraftForm.POSTMORTEM
    text = draft(records, form)
    if output is not None:
        _write(output, text)
    report = {"task_id": task, "form": form.value, "file": str(output) if output else None, "markdown": text}
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
