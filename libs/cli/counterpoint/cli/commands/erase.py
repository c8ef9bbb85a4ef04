"""`counterpoint erase`: erase content."""

import sys
from typing import Annotated, Any

import typer

from counterpoint.cli.approval_requests import waits_for_second
from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.session import CommandSession


@command("erase", Panel.OPERATE, 'counterpoint erase --source runbook.md --reason "holds a customer\'s name" --yes')
def erase(
    session: CommandSession,
    task: Annotated[str | None, typer.Option("--task", metavar="TASK", help="A task, by its id.")] = None,
    source: Annotated[str | None, typer.Option("--source", help="A document, by its source.")] = None,
    everything: Annotated[bool, typer.Option("--everything", help="All content of --project.")] = False,
    reason: Annotated[str, typer.Option("--reason", help="The reason, which is recorded.")] = "no reason was given",
    shown: Annotated[bool, typer.Option("--shown", help="Also records that read it without citing it.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
) -> Exit | None:
    """Erase a task, a document or a whole project permanently, with everything derived from it."""
    if everything and session.project is None:
        raise UsageError("--everything needs --project with the project to erase")
    chosen = {"task": task, "source": source, "project": session.project if everything else None}
    given = [(scope, what) for scope, what in chosen.items() if what is not None]
    if len(given) != 1:
        raise UsageError("give one of --task, --source and --everything")
    scope, what = given[0]
    if not yes:
        _confirm(f"{scope} {what}")
    body = {"scope": scope, "what": what, "reason": reason, "shown": shown}
    with session.connect() as api:
        reply = api.post("/v1/erasures", body, project=session.project)
    chosen_as = ("--everything",) if scope == "project" else (f"--{scope}", what)
    again = (*chosen_as, "--reason", reason, *(("--shown",) if shown else ()), "--yes")
    if (
        waiting := waits_for_second(session, reply, session.command("erase", *again, project=session.project or ""))
    ) is not None:
        return waiting
    session.show(reply, lambda: _summary(reply))
    return None


def _confirm(what: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError(f"this erases {what} permanently; confirm with --yes")
    if not typer.confirm(f"This erases {what} permanently, with everything derived from it. Continue?", err=True):
        raise UsageError("cancelled: nothing was erased")


def _summary(reply: dict[str, Any]) -> str:
    erased = ", ".join(f"{count} of {store}" for store, count in sorted(reply["gone"].items()))
    lines = [f"permanently erased: {erased}"]
    if reply.get("shown_to"):
        lines.append(
            f"{reply['shown_to']} more records read it without citing it and were kept; --shown erases them too"
        )
    return "\n".join(lines)
