"""`counterpoint ask`: ask a question."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit
from counterpoint.cli.options import SessionId, Timeout
from counterpoint.cli.session import CommandSession
from counterpoint.cli.task_requests import read_text, show_result, submit_task, wait_for_task


@command("ask", Panel.WORK, 'counterpoint ask "Who owns the orders file?"')
def ask(
    session: CommandSession,
    text: Annotated[str, typer.Argument(metavar="TEXT|-", help="The question; - reads standard input.")],
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait for the answer.")] = True,
    timeout: Timeout = 300.0,
    session_id: SessionId = None,
) -> Exit | None:
    """Ask a question, and print the answer with its citations.

    A question that refers back ("And when does it run?") is answered with the earlier ones of its --session.
    """
    body = {
        "kind": "question",
        "description": read_text(session, text),
        "session_id": session_id,
        "project": session.project,
    }
    with session.connect() as api:
        task_id = submit_task(api, body, None)["task_id"]
        if not wait:
            session.show({"task_id": task_id}, lambda: task_id)
            return Exit.DONE
        return show_result(session, wait_for_task(session, api, task_id, timeout))
