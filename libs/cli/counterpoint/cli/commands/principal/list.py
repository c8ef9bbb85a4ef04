"""`counterpoint principal list`: list principals."""

from counterpoint.cli.command import Panel, command
from counterpoint.cli.options import Limit
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import when


@command("list", Panel.OPERATE, "counterpoint principal list")
def listed(session: CommandSession, limit: Limit = 50) -> None:
    """List the principals."""
    with session.connect() as api:
        reply = api.pages("/v1/principals", limit)
    session.show(
        reply,
        lambda: table(
            ("name", "kind", "projects", "roles", "created", "until", "revoked"),
            [
                (
                    one["name"],
                    one["kind"],
                    ", ".join(one["projects"]),
                    ", ".join(one["roles"]),
                    when(one.get("created_at")),
                    when(one.get("expires_at")),
                    when(one.get("revoked_at")),
                )
                for one in reply["items"]
            ],
            "no principals",
        ),
    )
