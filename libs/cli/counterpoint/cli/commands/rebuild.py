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


def _rebuilt(found: dict[str, Any]) -> str:
    if found["state"] == "done":
        return f"{found['tier']} of {found['project']} is rebuilt: {found['records']} records"
    return f"{found['tier']} of {found['project']} was not rebuilt: {found.get('problem') or found['state']}"
