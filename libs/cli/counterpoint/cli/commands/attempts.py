"""`counterpoint attempts`: list earlier attempts."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import Limit
from counterpoint.cli.projects import note_others
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import when


@command("attempts", Panel.LOOK, 'counterpoint attempts --error "DNS lookup timed out"')
def attempts(
    session: CommandSession,
    error: Annotated[str | None, typer.Option("--error", help="Attempts at this error, then at similar ones.")] = None,
    job: Annotated[str | None, typer.Option("--job", metavar="NS/NAME", help="Attempts at a job.")] = None,
    limit: Limit = 50,
) -> None:
    """List earlier attempts and their outcomes."""
    with session.connect() as api:
        reply = api.pages("/v1/attempts", limit, error=error, job=job, project=session.project)
        if not reply["items"]:
            note_others(session, api, "attempts")
    session.show(
        reply,
        lambda: table(
            ("when", "outcome", "by", "tried", "task"),
            [
                (
                    when(one.get("decided_at") or one["at"]),
                    f"{one['outcome']} ({one['evidence']})" if one["outcome"] != "unknown" else "unknown",
                    one.get("override_by") or one["by"],
                    one.get("summary") or one["tried"],
                    f"{one['task_id']} #{one['attempt']}",
                )
                for one in reply["items"]
            ],
            "no attempts",
        ),
    )
