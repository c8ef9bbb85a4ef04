"""Titles of incidents: the short name of the job and the headline of its error, in a line that fits a list."""

import re

from counterpoint.proto.signature import headline
from counterpoint.recall.names import Node

TITLE_LIMIT_CHARS = 80
_NAME_LIMIT_CHARS = 40
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
    """`<job> failed: <headline of the error>` in at most `TITLE_LIMIT_CHARS` characters."""
    name = _cut(short_name(job), _NAME_LIMIT_CHARS, keep_end=True)
    raised, said = headline(error)
    message = " ".join(said.split())
    if raised and not message.startswith(raised):
        message = f"{raised.rpartition('.')[2]}: {message}" if message else raised
    message = message or " ".join(error.split())
    return _cut(f"{name} failed: {message}" if message else f"{name} failed", TITLE_LIMIT_CHARS)


def _cut(text: str, limit: int, *, keep_end: bool = False) -> str:
    if len(text) <= limit:
        return text
    if keep_end:
        return f"…{text[-(limit - 1) :]}"
    end = text.rfind(" ", limit // 2, limit - 1)
    return f"{text[: end if end > 0 else limit - 1].rstrip(' ,;:')}…"
