"""`counterpoint limit set`: set a limit."""

from typing import Annotated

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.commands.limit.scope import Name, Period, Scope, describe_limit, limit_key, limit_path
from counterpoint.cli.errors import UsageError
from counterpoint.cli.session import CommandSession


@command("set", Panel.OPERATE, "counterpoint limit set project --usd 20 --per month")
def set_limit(
    session: CommandSession,
    scope: Scope,
    name: Name = None,
    usd: Annotated[str | None, typer.Option("--usd", help="Maximum cost in US dollars.")] = None,
    tokens: Annotated[int | None, typer.Option("--tokens", min=0, help="Maximum number of tokens.")] = None,
    soft_usd: Annotated[str | None, typer.Option("--soft-usd", help="Cost from which a cheaper model is used.")] = None,
    soft_tokens: Annotated[
        int | None, typer.Option("--soft-tokens", min=0, help="Tokens from which a cheaper model is used.")
    ] = None,
    period: Period = "total",
    projects: Annotated[
        str | None,
        typer.Option(
            "--projects",
            metavar="NAMES",
            help="Of a named limit of the organisation: its projects, separated by commas; without them, all projects.",
        ),
    ] = None,
) -> None:
    """Set a limit, in place of one for the same scope, name and period.

    A call that could exceed a limit is refused, and the work goes on by rules. A model without a known price is refused
    under a limit in dollars. Over a soft amount a cheaper model is called, if one is configured, and you are warned.
    A limit of the organisation spans projects; it is set by an administrator of all projects and has no soft amounts.
    """
    key = limit_key(scope, name, period)
    amounts = {"usd": usd, "tokens": tokens, "soft_usd": soft_usd, "soft_tokens": soft_tokens}
    if all(each is None for each in amounts.values()):
        raise UsageError("a limit needs an amount: --usd, --tokens, --soft-usd or --soft-tokens")
    body = {**key, **amounts}
    if scope == "organisation":
        if soft_usd is not None or soft_tokens is not None:
            raise UsageError("a limit of the organisation has no soft amount: give --usd or --tokens")
        if (name is None) != (projects is None):
            raise UsageError("a limit of some projects needs a name and --projects; without both it is of all projects")
        named = [each.strip() for each in (projects or "").split(",") if each.strip()]
        body = {**key, "projects": named, "usd": usd, "tokens": tokens}
    elif projects is not None:
        raise UsageError("--projects is for limits of the organisation")
    with session.connect() as api:
        limit = api.put(limit_path(scope), body, project=session.project)
    session.show(limit, lambda: describe_limit(limit))
