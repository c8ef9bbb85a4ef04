"""`counterpoint tasks`: list tasks."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import Limit
from counterpoint.cli.projects import note_others
from counterpoint.cli.render.listing import by_submission, title
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import when

STATES = ("submitted", "working", "input_required", "completed", "failed", "cancelled")


@command("tasks", Panel.LOOK, "counterpoint tasks --state input_required")
def tasks(
    session: CommandSession,
    state: Annotated[str | None, typer.Option("--state", help="Only tasks in this state.")] = None,
    limit: Limit = 50,
) -> None:
    """List the last changed tasks, latest submission first."""
    if state is not None and state not in STATES:
        raise UsageError(f"a state is one of {', '.join(STATES)}, not {state}")
    with session.connect() as api:
        reply = api.pages("/v1/tasks", limit, state=state, project=session.project)
        note_others(session, api, "tasks")
    session.show(
        reply,
        lambda: table(
            ("submitted", "state", "kind", "task", "about"),
            [
                (
                    when(task.get("submitted_at")),
                    task["state"] + (f" ({task['waiting_for']})" if task.get("waiting_for") else ""),
                    task["kind"],
                    task["task_id"],
                    title(task),
                )
                for task in by_submission(reply["items"])
            ],
            "no tasks",
        ),
    )
