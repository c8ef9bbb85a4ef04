"""The parameters that name a limit, and its wording."""

from typing import Annotated, Any

import typer

from counterpoint.cli.errors import UsageError

SCOPES = ("project", "agent", "session", "task")
PERIODS = ("day", "month", "total")

Scope = Annotated[str, typer.Argument(metavar="SCOPE", help=f"One of {', '.join(SCOPES)}.")]
Name = Annotated[
    str | None, typer.Argument(metavar="NAME", help="An agent, session or task; without one, each by itself.")
]
Period = Annotated[str, typer.Option("--per", help=f"One of {', '.join(PERIODS)}; days and months are UTC.")]


def limit_key(scope: str, name: str | None, period: str) -> dict[str, Any]:
    """Return the fields that name a limit. Raises UsageError."""
    if scope not in SCOPES:
        raise UsageError(f"a scope is one of {', '.join(SCOPES)}, not {scope}")
    if period not in PERIODS:
        raise UsageError(f"a period is one of {', '.join(PERIODS)}, not {period}")
    if scope == "project" and name is not None:
        raise UsageError("a limit of the project takes no name; --project selects the project")
    return {"scope": scope, "name": name, "period": period}


def describe_limit(limit: dict[str, Any]) -> str:
    """Return a limit in words."""
    amounts = [f"{limit['usd']} USD" if limit.get("usd") is not None else ""]
    amounts.append(f"{limit['tokens']:,} tokens" if limit.get("tokens") is not None else "")
    amounts.append(f"{limit['soft_usd']} USD softly" if limit.get("soft_usd") is not None else "")
    amounts.append(f"{limit['soft_tokens']:,} tokens softly" if limit.get("soft_tokens") is not None else "")
    of = limit["project"] if limit["scope"] == "project" else limit.get("name") or "each"
    where = f"{of} {limit['scope']}" if of == "each" else f"{limit['scope']} {of}"
    period = {"day": " a day", "month": " a month", "total": ""}[limit["period"]]
    return f"{where}: {' and '.join(filter(None, amounts))}{period}"
