"""`counterpoint limit list`: list the limits and what was used of them."""

from decimal import Decimal
from typing import Any

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.costs import dollars
from counterpoint.cli.projects import note_others
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession
from counterpoint.proto.words import when


@command("list", Panel.OPERATE, "counterpoint limit list")
def list_limits(session: CommandSession) -> None:
    """List the limits of the project, and what was used of each in the present day, month or in all."""
    with session.connect() as api:
        reply = api.get("/v1/limits", project=session.project)
        note_others(session, api, "limit list")
    session.show(
        reply,
        lambda: table(
            ("limit", "per", "USD", "tokens", "soft", "most used", "reached"),
            [_row(one) for one in reply["items"]],
            "no limits",
        ),
    )


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    usd = f"{dollars(one['used_usd'])} of {Decimal(one['usd']):f}" if one.get("usd") is not None else "-"
    tokens = f"{one['used_tokens']:,} of {one['tokens']:,}" if one.get("tokens") is not None else "-"
    if Decimal(one.get("lifted_usd") or 0):
        usd += f" + {Decimal(one['lifted_usd']):f} lifted"
    if one.get("lifted_tokens"):
        tokens += f" + {one['lifted_tokens']:,} lifted"
    soft = [f"{Decimal(one['soft_usd']):f} USD"] if one.get("soft_usd") is not None else []
    soft += [f"{one['soft_tokens']:,} tokens"] if one.get("soft_tokens") is not None else []
    soft += ["reached"] if one.get("warned") else []
    reached = f"{when(one['reached_at'])} UTC" if one.get("reached_at") else "-"
    scope = "project" if one["scope"] == "project" else f"{one['scope']} {one.get('name') or '(each)'}"
    return scope, one["period"], usd, tokens, ", ".join(soft) or "-", one.get("most_used") or "-", reached
