"""`counterpoint cypher`: query the graph of actions."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from rich.console import RenderableType


@command("cypher", Panel.OPERATE, 'counterpoint cypher "MATCH (a:Action) RETURN a.kind, count(*)"')
def cypher(
    session: CommandSession,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A read-only query.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Maximum number of rows.")] = 100,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", metavar="NAME=VALUE", help="A value for $NAME: JSON, or text.")
    ] = None,
    timeout_ms: Annotated[int, typer.Option("--timeout-ms", min=1, max=2500, help="Timeout, in milliseconds.")] = 1000,
) -> None:
    """Query the actions of all tasks of a project in Cypher.

    Nodes are Task and Action, edges LEADS_TO, COORDINATES_WITH and PART_OF.
    """
    body = {
        "query": query,
        "parameters": dict(_parameter(each) for each in parameter or ()),
        "limit": limit,
        "timeout_ms": timeout_ms,
        "project": session.project,
    }
    with session.connect() as api:
        reply = api.post("/v1/cypher", body)
    session.show(reply, lambda: _rows(reply))


def _parameter(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise UsageError(f"a parameter is NAME=VALUE, not {given}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _rows(reply: dict[str, Any]) -> "RenderableType":
    cells = [
        tuple(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in row)
        for row in reply["rows"]
    ]
    return table(tuple(reply["columns"]), cells, "no rows", truncated=reply["cut"])
