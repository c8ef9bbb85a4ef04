"""The commands about what follows from the record: Cypher over the line, and rebuilding."""

import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, Misused
from counterpoint.cli.session import Session
from counterpoint.cli.table import table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer()

TIERS = ("episodic", "graph")
_LOOK_S = 0.2


@command(app, "cypher", Panel.OPERATE, 'counterpoint cypher "MATCH (a:Action) RETURN a.kind, count(*)"')
def cypher(
    session: Session,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to ask; it can only read.")],
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="How many rows at most.")] = 100,
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", metavar="NAME=VALUE", help="A value for $NAME: JSON, or text.")
    ] = None,
    timeout_ms: Annotated[int, typer.Option("--timeout-ms", min=1, max=2500, help="How long it may take.")] = 1000,
) -> None:
    """Ask the line of all tasks of a project in Cypher.

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
        found = api.post("/v1/cypher", body)
    session.show(found, lambda: _rows(found))


@command(app, "rebuild", Panel.OPERATE, "counterpoint rebuild graph")
def rebuild(
    session: Session,
    tier: Annotated[str, typer.Argument(metavar="TIER", help="episodic or graph.")],
) -> Exit | None:
    """Build a projection of a project anew from the record, and wait for it; what there is answers meanwhile."""
    if tier not in TIERS:
        raise Misused(f"a projection is one of {', '.join(TIERS)}, not {tier}")
    with session.connect() as api:
        found = api.post(f"/v1/rebuild/{tier}", {}, project=session.project)
        shown = None
        while found["state"] == "running":
            if (told := (found["records"], found["of"])) != shown:
                session.note(f"{found['records']} of {found['of']} records")
                shown = told
            time.sleep(_LOOK_S)
            found = api.get(f"/v1/rebuild/{tier}", project=session.project)
    session.show(found, lambda: _rebuilt(found))
    return Exit.DONE if found["state"] == "done" else Exit.FAILED


def _parameter(given: str) -> tuple[str, Any]:
    name, equals, value = given.partition("=")
    if not equals or not name:
        raise Misused(f"a parameter is NAME=VALUE, not {given}")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _rows(found: dict[str, Any]) -> "RenderableType":
    cells = [
        tuple(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in row)
        for row in found["rows"]
    ]
    return table(tuple(found["columns"]), cells, "no rows", truncated=found["cut"])


def _rebuilt(found: dict[str, Any]) -> str:
    if found["state"] == "done":
        return f"{found['tier']} of {found['project']} is built anew: {found['records']} records"
    return f"{found['tier']} of {found['project']} is not built: {found.get('problem') or found['state']}"
