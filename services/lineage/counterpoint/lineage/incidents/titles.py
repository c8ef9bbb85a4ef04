"""Titles of incidents: short name of the job and headline of its error."""

import re

from counterpoint.graph.names import Node
from counterpoint.proto.titles import failure_title

_ORDINAL = re.compile(r"(?:\.(?:sql|build|run|test|snapshot|seed)){0,2}(?:\.\d+)?$")
_RESOURCES = frozenset({"model", "seed", "snapshot", "test", "analysis", "operation", "unit_test", "source"})
_TOKEN = re.compile(r"[0-9a-f]{8,}")


def short_name(job: Node, integration: str | None = None) -> str:
    """Return the short name of a job.

    dbt: `model.shop.fct_revenue.sql.2` is `fct_revenue`, and so is `database.schema.shop.fct_revenue` where the
    integration is dbt; the hash at the end of a test id is left out. Other names stay whole: a prefix names the DAG or
    the application.
    """
    parts = _ORDINAL.sub("", job.name).split(".")
    above = 2 if parts[0] in _RESOURCES else 3 if (integration or "").upper() == "DBT" else len(parts)
    own = parts[above:]
    return ".".join([part for part in own if not _TOKEN.fullmatch(part)] or own) or job.name


def title_of(job: Node, error: str, integration: str | None = None) -> str:
    """Return `<job> failed: <headline of the error>`, as for every task (`counterpoint.proto.titles`)."""
    return failure_title(short_name(job, integration), error)
