"""The commands that take a wrong memory back."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import Session

app = typer.Typer()

Item = Annotated[str, typer.Argument(metavar="ITEM", help="STORE/ID, STORE/ID@VERSION, or the source of a document.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with it.")]
_NO_REASON = "no reason was given"


@command(app, "quarantine", Panel.OPERATE, 'counterpoint quarantine runbook.md --reason "it deletes the table"')
def quarantine(
    session: Session,
    item: Item,
    reason: Reason = _NO_REASON,
    lift: Annotated[
        bool, typer.Option("--lift", help="Undo a quarantine or a rollback: ITEM is the id that it printed.")
    ] = False,
) -> None:
    """Take a memory and all that used it out of every read, at once.

    What it was only shown to is left alone: `counterpoint blast-radius --memory ITEM --shown` lists that.
    """
    _take_back(session, "lift" if lift else "quarantine", item, reason)


@command(app, "rollback", Panel.OPERATE, "counterpoint rollback runbook.md")
def rollback(session: Session, item: Item, reason: Reason = _NO_REASON) -> None:
    """Put what stood before in the place of a memory, and of all that used it; what had no before goes out.

    Without a version it is the latest one that was wrong.
    """
    _take_back(session, "rollback", item, reason)


def _take_back(session: Session, kind: str, item: str, reason: str) -> None:
    body = {"kind": kind, "item": item, "reason": reason}
    with session.connect() as api:
        done = api.post("/v1/quarantines", body, project=session.project)
    session.show(done, lambda: report(done, lambda known: undoing(session, known)))


def undoing(session: Session, quarantine_id: str) -> str:
    """Return the command that undoes a take-back."""
    return session.command("quarantine", quarantine_id, "--lift", project=session.project or "")


def report(done: dict[str, Any], undo: Callable[[str], str]) -> str:
    """Describe a take-back or its undoing, and the commands that undo it and others about the same."""
    lines = [f"{_counted(counts)} {verb}" for verb, counts in _effects(done) if counts]
    lifts = done["kind"] == "lift"
    if not lines and not lifts:
        lines = ["nothing of it was left to be taken back"]
    elif not lines:
        lines = ["nothing had to be put back"]
    if done.get("tasks_count"):
        lines.append(f"{done['tasks_count']} tasks rest on it; their records stay: {', '.join(done['tasks'][:5])}")
    if not lifts:
        lines.append(f"undo it with `{undo(done['quarantine_id'])}`")
    lines += [
        f"another take-back of the same still stands; undo it with `{undo(other)}`" for other in done.get("others", ())
    ]
    return "\n".join(lines)


def _effects(done: dict[str, Any]) -> tuple[tuple[str, dict[str, int]], ...]:
    return ("taken out", done.get("out", {})), ("put back as they were", done.get("restored", {}))


def _counted(stores: dict[str, int]) -> str:
    return ", ".join(f"{count} of {store}" for store, count in sorted(stores.items()) if store != "quarantines")
