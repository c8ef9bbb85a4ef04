"""`counterpoint lineage`: show the jobs and data sets around a job."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import JobName, job_path
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession


@command("lineage", Panel.LOOK, "counterpoint lineage file/orders_ingest.fetch_orders --direction down")
def lineage(
    session: CommandSession,
    job: JobName,
    depth: Annotated[int, typer.Option("--depth", min=1, max=100, help="Maximum number of hops.")] = 20,
    direction: Annotated[str, typer.Option("--direction", metavar="up|down|both", help="The direction.")] = "both",
) -> None:
    """Show the data sets and jobs before and after a job."""
    if direction not in ("up", "down", "both"):
        raise UsageError(f"a direction is up, down or both, not {direction}")
    with session.connect() as api:
        reply = api.get(f"{job_path(job)}/lineage", depth=depth, direction=direction, project=session.project)
    session.show(
        reply,
        lambda: table(
            ("hops", "kind", "namespace", "name", "owner"),
            [
                (
                    f"{node['hops']:+d}" if node["hops"] else "0",
                    node["node"]["kind"],
                    node["node"]["namespace"],
                    node["node"]["name"],
                    node.get("owner") or "",
                )
                for node in sorted(reply["nodes"], key=lambda node: node["hops"])
            ],
            "no lineage is known",
            truncated=reply.get("truncated", False),
        ),
    )
