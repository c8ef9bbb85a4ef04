"""Take-back of memories: the request and its report."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from counterpoint.cli.approval_requests import waits_for_second
from counterpoint.cli.errors import Exit
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import quantity

Item = Annotated[str, typer.Argument(metavar="ITEM", help="STORE/ID, STORE/ID@VERSION, or the source of a document.")]


Reason = Annotated[str, typer.Option("--reason", help="The reason, which is recorded.")]


NO_REASON = "no reason was given"
_TASKS_NAMED = 5


def take_back(session: CommandSession, kind: str, item: str, reason: str) -> Exit | None:
    """Take back or lift, and show the result or the approval that it waits for."""
    body = {"kind": kind, "item": item, "reason": reason}
    with session.connect() as api:
        reply = api.post("/v1/quarantines", body, project=session.project)
    again = session.command(kind, item, "--reason", reason, project=session.project or "")
    if (waiting := waits_for_second(session, reply, again)) is not None:
        return waiting
    session.show(reply, lambda: report(reply, lambda known: undo_command(session, known)))
    return None


def undo_command(session: CommandSession, quarantine_id: str) -> str:
    """Return the command that undoes a take-back."""
    return session.command("quarantine", quarantine_id, "--lift", project=session.project or "")


def report(reply: dict[str, Any], undo: Callable[[str], str]) -> str:
    """Describe a take-back or its undoing, and the commands that undo it and others about the same."""
    lines = [f"records {verb}: {_counts(counts)}" for verb, counts in _effects(reply) if counts]
    lifts = reply["kind"] == "lift"
    if not lines and not lifts:
        lines = ["nothing was left to take back"]
    elif not lines:
        lines = ["nothing had to be restored"]
    if reply.get("tasks_count"):
        lines.append(_dependents(reply["tasks_count"], reply["tasks"]))
    if not lifts:
        lines.append(f"undo it with `{undo(reply['quarantine_id'])}`")
    lines += [
        f"another take-back of the same item is still in effect; undo it with `{undo(other)}`"
        for other in reply.get("others", ())
    ]
    return "\n".join(lines)


def _dependents(count: int, tasks: Sequence[str]) -> str:
    one = count == 1
    verb = (
        "depends on it; its record is kept, and its card warns"
        if one
        else ("depend on it; their records are kept, and their cards warn")
    )
    return f"{quantity(count, 'task')} {verb}: {named_tasks(count, tasks)}"


def named_tasks(count: int, tasks: Sequence[str]) -> str:
    """Return the ids of the first tasks, and the number of the others."""
    named = ", ".join(tasks[:_TASKS_NAMED])
    return f"{named} and {count - _TASKS_NAMED} more" if count > _TASKS_NAMED else named


def _effects(reply: dict[str, Any]) -> tuple[tuple[str, dict[str, int]], ...]:
    return ("taken out", reply.get("out", {})), ("restored", reply.get("restored", {}))


def _counts(stores: dict[str, int]) -> str:
    return ", ".join(f"{count} of {store}" for store, count in sorted(stores.items()) if store != "quarantines")
