"""`counterpoint neighbours`: show the graph around an entity."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import Limit
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession


@command("neighbours", Panel.LOOK, "counterpoint neighbours ID --depth 2")
def neighbours(
    session: CommandSession,
    entity: Annotated[str, typer.Argument(metavar="ID", help="The entity's id.")],
    depth: Annotated[int, typer.Option("--depth", min=1, max=6, help="Maximum number of hops.")] = 1,
    limit: Limit = 50,
) -> None:
    """Show the mentions around an entity, hop by hop."""
    from urllib.parse import quote

    path = f"/v1/entities/{quote(entity, safe='')}/neighbours"
    with session.connect() as api:
        reply = api.get(path, depth=depth, limit=limit, project=session.project)
    rows = [
        (str(each["hops"]), each["source"], each["properties"].get("name", each["target"]))
        for each in reply["neighbours"]
    ]
    session.show(reply, lambda: table(("hops", "source", "name"), rows, "nothing mentions it"))
