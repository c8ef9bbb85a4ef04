"""`counterpoint session`: show what the tasks of a session came to."""

from typing import Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import check_id
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import when


@command("session", Panel.LOOK, "counterpoint session orders-migration")
def session(
    session: CommandSession,
    session_id: Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.", callback=check_id)],
    tokens: Annotated[int, typer.Option("--tokens", min=100, max=100_000, help="Maximum size, in tokens.")] = 2000,
) -> None:
    """Show what the latest tasks of a session asked, tried, decided and learned: open ones first, then the newest."""
    with session.connect() as api:
        digest = api.get(f"/v1/sessions/{session_id}", tokens=tokens, project=session.project)
    session.show(digest, lambda: _shown(digest))


def _shown(digest: dict[str, Any]) -> str:
    opened, continued = when(digest["opened_at"]), when(digest["continued_at"])
    head = f"session {digest['session_id']}, opened {opened} UTC, continued {continued} UTC"
    parts = [head, digest["text"]]
    if digest.get("compacted"):
        before = f"The tasks before the latest, compacted by {digest['compacted_by']}:"
        parts.append(f"{before}\n{digest['compacted']}")
    return "\n\n".join(parts)
