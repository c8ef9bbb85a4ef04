"""`counterpoint rebuild`: rebuild a projection."""

import time
from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import Exit, UsageError
from counterpoint.cli.session import CommandSession

TIERS = ("episodic", "graph")
_LOOK_S = 0.2


@command("rebuild", Panel.OPERATE, "counterpoint rebuild graph")
def rebuild(
    session: CommandSession,
    tier: Annotated[str, typer.Argument(metavar="TIER", help="episodic or graph.")],
) -> Exit | None:
    """Rebuild a projection of a project and wait for it. The present one serves queries meanwhile."""
    if tier not in TIERS:
        raise UsageError(f"a projection is one of {', '.join(TIERS)}, not {tier}")
    with session.connect() as api:
        reply = api.post(f"/v1/rebuild/{tier}", {}, project=session.project)
        printed = None
        while reply["state"] == "running":
            if (progress := (reply["records"], reply["of"])) != printed:
                session.note(f"{reply['records']} of {reply['of']} records")
                printed = progress
            time.sleep(_LOOK_S)
            reply = api.get(f"/v1/rebuild/{tier}", project=session.project)
    session.show(reply, lambda: _summary(reply))
    return Exit.DONE if reply["state"] == "done" else Exit.FAILED


def _summary(reply: dict[str, Any]) -> str:
    if reply["state"] == "done":
        return f"{reply['tier']} of {reply['project']} is rebuilt: {reply['records']} records"
    return f"{reply['tier']} of {reply['project']} was not rebuilt: {reply.get('problem') or reply['state']}"
