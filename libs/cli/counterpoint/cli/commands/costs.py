"""`counterpoint costs`: sum up what model calls cost."""

from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any

import typer

from counterpoint.cli.command import Panel, command
from counterpoint.cli.errors import UsageError
from counterpoint.cli.options import Limit
from counterpoint.cli.projects import list_projects
from counterpoint.cli.render.limits import dollars, limits_table
from counterpoint.cli.render.table import table
from counterpoint.cli.session import CommandSession

if TYPE_CHECKING:
    from rich.console import RenderableType

    from counterpoint.cli.api import ApiClient

GROUPS = ("agent", "day", "model", "project", "session", "task")
_COUNTS = ("calls", "unpriced", "unknown", "input_tokens", "output_tokens", "under_way", "reserved_tokens")
_AMOUNTS = ("usd", "reserved_usd")


@command("costs", Panel.LOOK, "counterpoint costs --by day --since 2026-11-01T00:00:00Z")
def costs(
    session: CommandSession,
    by: Annotated[str, typer.Option("--by", help=f"One of {', '.join(GROUPS)}.")] = "model",
    since: Annotated[str | None, typer.Option("--since", metavar="TIME", help="Only calls since.")] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME", help="Only calls before.")] = None,
    limit: Limit = 50,
) -> None:
    """Sum up what model calls cost, the most expensive group first, or the latest day.

    `--by project` without `--project` sums up every project, and shows the limits of the organisation.
    """
    if by not in GROUPS:
        raise UsageError(f"costs are grouped by {', '.join(GROUPS)}, not {by}")
    with session.connect() as api:
        query = {"by": by, "since": since, "until": until, "limit": min(limit, 1000)}
        if by == "project" and not session.project:
            report = _all_projects(api, query, limit)
        else:
            report = api.get("/v1/costs", project=session.project, **query)
    session.show(report, lambda: _shown(report))


def _all_projects(api: "ApiClient", query: dict[str, Any], limit: int) -> dict[str, Any]:
    """Return one report of all projects in use. A project without a call has no line."""
    found = [api.get("/v1/costs", project=project, **query) for project in list_projects(api)]
    lines = sorted(
        (line for each in found for line in each["lines"]), key=lambda line: Decimal(line["usd"]), reverse=True
    )
    totals = [each["total"] for each in found]
    total: dict[str, Any] = {name: sum(each[name] for each in totals) for name in _COUNTS}
    total |= {name: str(sum(Decimal(each[name]) for each in totals)) for name in _AMOUNTS}
    limits = [each for each in api.get("/v1/limits")["items"] if each["scope"] == "organisation"]
    return {
        "by": "project",
        "lines": lines[:limit],
        "total": total,
        "truncated": len(lines) > limit,
        "organisation_limits": limits,
    }


def _shown(report: dict[str, Any]) -> "RenderableType":
    rows = [_row(line["key"] or "-", line) for line in report["lines"]]
    if len(rows) > 1 or report["truncated"]:
        rows.append(_row("total", report["total"]))
    heads = (report["by"], "USD", "calls", "tokens in", "tokens out", "notes")
    sums = table(heads, rows, "no model calls", report["truncated"])
    limits = report.get("organisation_limits")
    if not limits:
        return sums
    from rich.console import Group

    return Group(sums, "", limits_table(limits))


def _row(key: str, line: dict[str, Any]) -> tuple[str, ...]:
    notes = [
        f"{line['unpriced']} without a known price" if line["unpriced"] else "",
        f"{line['unknown']} of unknown outcome, at their estimate" if line["unknown"] else "",
        f"{line['under_way']} under way, {dollars(line['reserved_usd'])} reserved" if line["under_way"] else "",
    ]
    return (
        key,
        dollars(line["usd"]),
        f"{line['calls']:,}",
        f"{line['input_tokens']:,}",
        f"{line['output_tokens']:,}",
        "; ".join(filter(None, notes)),
    )
