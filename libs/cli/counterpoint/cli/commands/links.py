"""`counterpoint links`: list links between incidents."""

from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import Limit
from counterpoint.cli.projects import note_others
from counterpoint.cli.session import CommandSession


@command("links", Panel.LOOK, "counterpoint links INCIDENT")
def links(
    session: CommandSession,
    incident: Annotated[str | None, typer.Argument(metavar="[INCIDENT]", help="A task; all without one.")] = None,
    limit: Limit = 50,
) -> None:
    """List the links between incidents."""
    with session.connect() as api:
        reply = api.pages("/v1/links", limit, task_id=incident, project=session.project)
        if not reply["items"]:
            note_others(session, api, "links")
    session.show(reply, lambda: "\n".join(map(_line, reply["items"])) or "no links")


def _line(each: dict[str, Any]) -> str:
    one, other = (side["task_id"] for side in each["pair"])
    how = {"same": "is the same as", "different": "is not", "merged": "takes in"}.get(each["relation"], "?")
    reason = f": {each['reason']}" if each.get("reason") else ""
    return f"{one} {how} {other} ({each['by']}, {each['at'][:10]}){reason}"
