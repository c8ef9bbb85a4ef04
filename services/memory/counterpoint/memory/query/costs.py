"""Costs: sums of the model calls of a project."""

from typing import Any

from counterpoint.guard.capabilities import Grant
from counterpoint.memory.record.sql_files import load_statements
from counterpoint.proto.memory import CostLine, CostReport, Costs, CostSum, QueryPlan, QueryResult

_SQL = load_statements(__package__)


async def costs(connection: Any, grant: Grant, query: Costs) -> QueryResult:
    """Return the costs of the project of a grant, of the calls that its clearance may see."""
    rows = await connection.fetch(
        _SQL["costs"], grant.project, grant.clearance, query.by, query.since, query.until, query.limit + 1, query.key
    )
    (total,), groups = [row for row in rows if row["is_total"]], [row for row in rows if not row["is_total"]]
    report = CostReport(
        by=query.by,
        lines=tuple(CostLine(key=row["key"], **_sums(row)) for row in groups[: query.limit]),
        total=CostSum(**_sums(total)),
        truncated=len(groups) > query.limit,
    )
    return QueryResult(tier="record", plan=QueryPlan.AGGREGATE, took_us=0, report=report.model_dump(mode="json"))


def _sums(row: Any) -> dict[str, Any]:
    return {name: row[name] for name in CostSum.model_fields}
