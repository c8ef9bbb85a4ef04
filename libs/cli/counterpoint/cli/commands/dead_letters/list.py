"""`counterpoint dead-letters list`: list dead letters."""

from typing import Any

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import Limit
from counterpoint.cli.projects import note_others
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import when


@command("list", Panel.LOOK, "counterpoint dead-letters list")
def listed(session: CommandSession, limit: Limit = 50) -> None:
    """List dead letters, newest first."""
    with session.connect() as api:
        reply = api.pages("/v1/dead-letters", limit, project=session.project)
        if not reply["items"]:
            note_others(session, api, "dead-letters list")
    session.show(
        reply,
        lambda: table(
            ("when", "state", "code", "subject", "id", "about"),
            [
                (when(each["at"]), *map(each.get, ("state", "code", "subject", "dead_letter_id")), _first_problem(each))
                for each in reply["items"]
            ],
            "no dead letters",
        ),
    )


def _first_problem(letter: dict[str, Any]) -> str:
    first = next(iter(letter.get("problems") or ()), None)
    return f"{first['field']}: {first['problem']}" if first else ""
