"""The commands that take a wrong memory back."""

from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.session import Session

app = typer.Typer()

Item = Annotated[str, typer.Argument(metavar="ITEM", help="STORE/ID, STORE/ID@VERSION, or the source of a document.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is kept with it.")]
CitedOnly = Annotated[
    bool, typer.Option("--cited-only", help="Leave alone what the item was only shown to, and did not name it.")
]
_NO_REASON = "no reason was given"


@command(app, "quarantine", Panel.OPERATE, 'counterpoint quarantine runbook.md --reason "it deletes the table"')
def quarantine(
    session: Session,
    item: Item,
    reason: Reason = _NO_REASON,
    cited_only: CitedOnly = False,
    lift: Annotated[bool, typer.Option("--lift", help="Undo it: ITEM is the quarantine's id.")] = False,
) -> None:
    """Take a memory and all that rests on it out of every read, at once."""
    _take_back(session, "lift" if lift else "quarantine", item, reason, cited_only)


@command(app, "rollback", Panel.OPERATE, "counterpoint rollback runbook.md")
def rollback(session: Session, item: Item, reason: Reason = _NO_REASON, cited_only: CitedOnly = False) -> None:
    """Put what stood before in the place of a memory, and of all that rests on it; what had no before goes out.

    Without a version it is the latest one that was wrong.
    """
    _take_back(session, "rollback", item, reason, cited_only)


def _take_back(session: Session, kind: str, item: str, reason: str, cited_only: bool) -> None:
    body = {"kind": kind, "item": item, "reason": reason, "cited_only": cited_only}
    with session.connect() as api:
        done = api.post("/v1/quarantines", body, project=session.project)
    session.show(done, lambda: told(done))


def told(done: dict[str, Any]) -> str:
    """What became of a wish, in words."""
    lines = [f"{_counted(counts)} {verb}" for verb, counts in _effects(done) if counts]
    if not lines:
        lines = ["nothing of it was left to be taken back"]
    if done.get("tasks_count"):
        lines.append(f"{done['tasks_count']} tasks rest on it; their records stay: {', '.join(done['tasks'][:5])}")
    if done["kind"] == "quarantine":
        lines.append(f"undo it with `counterpoint quarantine {done['quarantine_id']} --lift`")
    return "\n".join(lines)


def _effects(done: dict[str, Any]) -> tuple[tuple[str, dict[str, int]], ...]:
    return ("taken out", done.get("out", {})), ("put back as they were", done.get("restored", {}))


def _counted(stores: dict[str, int]) -> str:
    return ", ".join(f"{count} of {store}" for store, count in sorted(stores.items()) if store != "quarantines")
