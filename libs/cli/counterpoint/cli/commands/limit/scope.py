"""The parameters that name a limit, and its wording."""

from typing import Annotated, Any

import typer

from counterpoint.cli.errors import UsageError

SCOPES = ("organisation", "project", "agent", "session", "task")
PERIODS = ("day", "month", "total")

Scope = Annotated[str, typer.Argument(metavar="SCOPE", help=f"One of {', '.join(SCOPES)}.")]
Name = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="An agent, session or task; without one, each by itself. Of the organisation: a name for --projects.",
    ),
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


def limit_path(scope: str) -> str:
    """Return the path of the API for limits of a scope."""
    return "/v1/limits/organisation" if scope == "organisation" else "/v1/limits"


def describe_limit(limit: dict[str, Any]) -> str:
    """Return a limit in words."""
    amounts = [f"{limit['usd']} USD" if limit.get("usd") is not None else ""]
    amounts.append(f"{limit['tokens']:,} tokens" if limit.get("tokens") is not None else "")
    amounts.append(f"{limit['soft_usd']} USD softly" if limit.get("soft_usd") is not None else "")
    amounts.append(f"{limit['soft_tokens']:,} tokens softly" if limit.get("soft_tokens") is not None else "")
    period = {"day": " a day", "month": " a month", "total": ""}[limit["period"]]
    return f"{_described_scope(limit)}: {' and '.join(filter(None, amounts))}{period}"


def _described_scope(limit: dict[str, Any]) -> str:
    match limit["scope"]:
        case "project":
            return f"project {limit['project']}"
        case "organisation" if limit.get("name"):
            return f"organisation {limit['name']} ({', '.join(limit['projects'])})"
        case "organisation":
            return "organisation (all projects)"
        case scope:
            return f"{scope} {limit['name']}" if limit.get("name") else f"each {scope}"
