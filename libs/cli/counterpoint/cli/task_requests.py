"""Requests about tasks: submission, waiting, and the reply to a report."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from counterpoint.cli.api import ApiClient


ERROR_CHARS = 16_000


def read_text(session: CommandSession, given: str) -> str:
    if given == "-" and sys.stdin.isatty():
        session.note("reading the text from the terminal; Ctrl-D ends it")
    text = sys.stdin.read() if given == "-" else given
    if not text.strip():
        raise UsageError("the text is empty")
    return text


def read_error(file: Path | None) -> str | None:
    """Return the error message in a file. Raises UsageError for one that is too long."""
    text = file.read_text(errors="replace") if file else None
    if text and len(text) > ERROR_CHARS:
        raise UsageError(
            f"{file} contains {len(text)} characters; the limit is {ERROR_CHARS}: shorten it to the failure, "
            "and ingest the whole file with `counterpoint ingest`"
        )
    return text


def show_receipt(session: CommandSession, reply: dict[str, Any], note: str) -> Exit:
    """Print the receipt of an intervention; exit code 1 when the task has ended."""
    late = bool(reply.get("late"))
    session.show(reply, lambda: f"{reply['task_id']} has ended ({reply['state']}): no effect" if late else note)
    return Exit.FAILED if late else Exit.DONE


def submit_task(api: "ApiClient", body: dict[str, Any], idempotency_key: str | None) -> dict[str, Any]:
    accepted: dict[str, Any] = api.post_once("/v1/tasks", body, idempotency_key)
    return accepted


def note_open_failure(session: CommandSession, accepted: dict[str, Any]) -> None:
    """Note the open task about the same failure that the reply to a submission names."""
    from counterpoint.proto.findings import OPEN_SAME_FAILURE

    other = (accepted.get("context") or {}).get(OPEN_SAME_FAILURE)
    if other:
        show = session.command("show", other["task_id"], project=accepted["project"])
        session.note(f"{other['task_id']} is open, from {other['submitted_by']}, about the same failure: `{show}`")


def wait_for_task(session: CommandSession, api: "ApiClient", task_id: str, timeout_s: float) -> dict[str, Any]:
    """Return a task once it has ended or waits for input, or after the timeout."""
    import time

    from counterpoint.cli.api import WAIT_S

    session.note(f"waiting for {task_id}")
    deadline = time.monotonic() + timeout_s
    while True:
        remaining_s = deadline - time.monotonic()
        wait = int(max(0, min(WAIT_S, remaining_s)))
        task: dict[str, Any] = api.get(f"/v1/tasks/{task_id}", wait=wait, project=session.project)
        if task["state"] not in ("submitted", "working") or remaining_s <= WAIT_S:
            return task


def show_result(session: CommandSession, task: dict[str, Any]) -> Exit:
    from counterpoint.card.render import rendered

    session.show(task, lambda: rendered(task, session.out))
    match task["state"]:
        case "completed":
            return Exit.DONE
        case "input_required":
            return Exit.WAITING
        case "failed" | "cancelled":
            return Exit.FAILED
        case working:
            again = session.command("show", task["task_id"], project=task["project"])
            session.note(f"{task['task_id']} is still {working}; check again with `{again}`")
            return Exit.FAILED
