"""`counterpoint intake try`: show what a webhook would do."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.session import CommandSession

_EVENT_HEADERS = ("X-GitHub-Event", "X-Gitea-Event")


@command("try", Panel.OPERATE, "counterpoint intake try body.json --source monitoring")
def try_(
    session: CommandSession,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The body of a request, as JSON.")],
    source: Annotated[str, typer.Option("--source", help="A source of COUNTERPOINT_HOOKS_FILE, or a kind.")],
    event: Annotated[str | None, typer.Option("--event", help="The event that a forge names in a header.")] = None,
) -> None:
    """Show the tasks that the body of a webhook would submit, without submitting them."""
    try:
        content = file.read_text()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} cannot be read: it is not UTF-8") from error
    headers = dict.fromkeys(_EVENT_HEADERS, event) if event else {}
    with session.connect() as api:
        reply = api.post(f"/hooks/{source}", content, headers=headers, trial="true", project=session.project)
    session.show(reply, lambda: _text(reply))


def _text(reply: dict[str, Any]) -> str:
    lines = [f"would submit\n{json.dumps(task, indent=2, ensure_ascii=False)}" for task in reply.get("tasks", ())]
    lines += [f"would join the open task {task_id}" for task_id in reply.get("joins", ())]
    lines += [f"would report a recovery of {key}" for key in reply.get("resolved", ())]
    lines += [f"would note on the task of its issue: {text}" for text in reply.get("notes", ())]
    lines += [f"would be ignored: {reason}" for reason in reply.get("ignored", ())]
    return "\n".join(lines) or "has no event"
