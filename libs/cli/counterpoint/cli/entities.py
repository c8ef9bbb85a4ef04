"""The commands that look at the knowledge graph."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.look import Limit
from counterpoint.cli.session import Session
from counterpoint.cli.table import table

app = typer.Typer()


@command(app, "entities", Panel.LOOK, "counterpoint entities resolver --kind service")
def entities(
    session: Session,
    text: Annotated[str | None, typer.Argument(metavar="[TEXT]", help="Words of the name.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="file, service, dag, error or system.")] = None,
    limit: Limit = 50,
) -> None:
    """List the files, services, DAGs, errors and systems that documents and tasks mention."""
    with session.connect() as api:
        found = api.pages("/v1/entities", limit, text=text, kind=kind, project=session.project)
    rows = [(each["kind"], each["name"], each["id"]) for each in found["items"]]
    session.show(found, lambda: table(("kind", "name", "id"), rows, "nothing is mentioned"))


@command(app, "neighbours", Panel.LOOK, "counterpoint neighbours ID --depth 2")
def neighbours(
    session: Session,
    entity: Annotated[str, typer.Argument(metavar="ID", help="The entity's id.")],
    depth: Annotated[int, typer.Option("--depth", min=1, max=6, help="How many hops.")] = 1,
    limit: Limit = 50,
) -> None:
    """Show what mentions an entity, what else that mentions, and so on."""
    from urllib.parse import quote

    path = f"/v1/entities/{quote(entity, safe='')}/neighbours"
    with session.connect() as api:
        found = api.get(path, depth=depth, limit=limit, project=session.project)
    rows = [
        (str(each["hops"]), each["source"], each["properties"].get("name", each["target"]))
        for each in found["neighbours"]
    ]
    session.show(found, lambda: table(("hops", "source", "name"), rows, "nothing mentions it any more"))
