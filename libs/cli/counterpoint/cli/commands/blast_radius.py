"""`counterpoint blast-radius`: show what depends on a job or a memory."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import job_path
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession
from counterpoint.cli.take_back import named_tasks
from counterpoint.proto.words import quantity

if TYPE_CHECKING:
    from rich.console import RenderableType


@command("blast-radius", Panel.LOOK, "counterpoint blast-radius --memory runbook.md")
def blast_radius(
    session: CommandSession,
    job: Annotated[str | None, typer.Argument(metavar="JOB", help="NAMESPACE/NAME of a job.")] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory", metavar="ITEM", help="A memory: STORE/ID, STORE/ID@VERSION, or the source of a document."
        ),
    ] = None,
    depth: Annotated[int, typer.Option("--depth", min=1, max=100, help="Maximum number of hops from a job.")] = 20,
    shown: Annotated[
        bool,
        typer.Option(
            "--shown",
            help="With --memory: also records that read it without citing it; a take-back does not change them.",
        ),
    ] = False,
) -> None:
    """Show the jobs and data sets downstream of a job with their owners; or all that used a memory."""
    if (job is None) == (memory is None):
        raise UsageError("give either JOB or --memory ITEM")
    with session.connect() as api:
        if memory is not None:
            dependents = api.get("/v1/blast-radius", item=memory, shown=shown or None, project=session.project)
            session.show(dependents, lambda: _dependents(dependents))
            return
        reply = api.get(f"{job_path(job or '')}/blast-radius", depth=depth, project=session.project)
    session.show(
        reply,
        lambda: table(
            ("hops", "by", "kind", "namespace", "name", "owner"),
            [
                (str(row["hops"]), row["edge"], row["kind"], row["namespace"], row["name"], row.get("owner") or "")
                for row in reply["downstream"]
            ],
            "nothing depends on it",
            truncated=reply.get("truncated", False),
        ),
    )


def _dependents(reply: dict[str, Any]) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    rows = table(
        ("hops", "by", "store", "id", "task"),
        [
            (
                str(each["hops"]),
                "used" if each["cited"] else "shown",
                each["store"],
                f"{each['id']}@{each['version']}",
                each.get("task_id") or "",
            )
            for each in reply["items"]
        ],
        "nothing depends on it",
        truncated=reply["truncated"],
    )
    return Group(rows, Text(_summary(reply))) if reply["items"] else rows


def _summary(reply: dict[str, Any]) -> str:
    """Return the number of records in each store, and the tasks."""
    kinds = Counter(store for store, _ in {(each["store"], each["id"]) for each in reply["items"]})
    counts = ", ".join(f"{count} of {store}" for store, count in sorted(kinds.items()))
    tasks = list(dict.fromkeys(each["task_id"] for each in reply["items"] if each.get("task_id")))
    of = f"; {quantity(len(tasks), 'task')}: {named_tasks(len(tasks), tasks)}" if tasks else ""
    return f"{'at least ' if reply['truncated'] else ''}{counts}{of}"
