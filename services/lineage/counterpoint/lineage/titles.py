"""Titles of incidents: the short name of the job and the headline of its error, in a line that fits a list."""

import re

from counterpoint.proto.titles import failure_title
from counterpoint.recall.names import Node

_ORDINAL = re.compile(r"(?:\.(?:sql|build|run|test|snapshot|seed))?(?:\.\d+)?$")
_RESOURCES = frozenset({"model", "seed", "snapshot", "test", "analysis", "operation", "unit_test", "source"})
_TOKEN = re.compile(r"[0-9a-f]{8,}")


def short_name(job: Node) -> str:
    """The name by which people know a job.

    dbt: `model.shop.fct_revenue.sql.2` is `fct_revenue`; the hash at the end of a test's id is left out. Others keep
    their name, since what precedes a point there is the DAG or the application.
    """
    parts = _ORDINAL.sub("", job.name).split(".")
    if len(parts) > 2 and parts[0] in _RESOURCES:
        own = [part for part in parts[2:] if not _TOKEN.fullmatch(part)] or parts[2:]
        return ".".join(own)
    return job.name


def title_of(job: Node, error: str) -> str:
    """Return `<job> failed: <headline of the error>`, as for every task (`counterpoint.proto.titles`)."""
    return failure_title(short_name(job), error)
