"""Readers of OpenLineage facets; missing or malformed values are read as absent."""

import ast
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeGuard

from counterpoint.graph.names import NAME_LIMIT_CHARS, Node, NodeKind
from counterpoint.guard.judge import redacted_text
from counterpoint.guard.policy import policy
from counterpoint.lineage.openlineage.events import AirflowFacts, CodeLocation, RunError
from counterpoint.lineage.sizes import shortest
from counterpoint.proto.signature import headline

ERROR_LIMIT_CHARS = 4_000
STACK_LIMIT_CHARS = 8_000
NAMES_LIMIT_CHARS = 2_000
"""Longest name or URL in a facet, and longest list of owners; what is longer is left out."""
_OMITTED = "\n…\n"
_NUMBER_CHARS = 18


def parse_time(text: str) -> datetime:
    """Parse a time as UTC: RFC 3339 with any number of decimals (cut to microseconds); no zone means UTC.

    Raises `ValueError`.
    """
    stripped = re.sub(r"\[[^\[\]]*\]$", "", text.strip())
    stripped = stripped[:-1] + "+00:00" if stripped[-1:] in ("z", "Z") else stripped
    moment = datetime.fromisoformat(stripped)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"out of range: {text!r}") from error


def text(facet: Mapping[str, Any], key: str) -> str | None:
    """Return the text under `key`, or None when blank; NUL is removed and unpaired surrogates are replaced."""
    found = facet.get(key)
    return found.replace("\x00", "").encode("utf-8", "replace").decode() if _is_text(found) else None


def name(facet: Mapping[str, Any], key: str) -> str | None:
    """Return the name or URL under `key`, or None when blank or longer than `NAMES_LIMIT_CHARS`."""
    found = text(facet, key)
    return found if found is not None and len(found) <= NAMES_LIMIT_CHARS else None


def _is_text(found: object) -> TypeGuard[str]:
    return isinstance(found, str) and bool(found.strip())


def number(facet: Mapping[str, Any], key: str) -> int | None:
    """Return the integer under `key`, also when it is sent as text."""
    match facet.get(key):
        case bool():
            return None
        case int(found):
            return found
        case str(found) if found.strip().isdecimal() and len(found) <= _NUMBER_CHARS:
            return int(found)
        case _:
            return None


def _names(value: object) -> tuple[str, ...]:
    """Return a list of names; Airflow sends it as the text of a Python list."""
    if isinstance(value, str):
        try:
            value = ast.literal_eval(value)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return ()
    if not isinstance(value, list | tuple | set):
        return ()
    return tuple(sorted(name for name in value if isinstance(name, str) and name.strip() and name.isprintable()))


def owners(facet: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the owners in an ownership facet, sorted."""
    listed = facet.get("owners")
    found = listed if isinstance(listed, list) else []
    return _owner_names(*(text(owner, "name") for owner in found if isinstance(owner, Mapping)))


def _owner_names(*names: str | None) -> tuple[str, ...]:
    """Return the names sorted, without those that Airflow masked."""
    found = (name.strip() for name in names if name is not None and name.strip("* "))
    return shortest(found, NAMES_LIMIT_CHARS)


def airflow_owners(facet: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the owners of the task, else of the DAG, in Airflow's own facet."""
    for key in ("task", "dag"):
        owner = text(_part(facet, key), "owner")
        if owner is not None and (found := _owner_names(*owner.split(","))):
            return found
    return ()


def airflow(facet: Mapping[str, Any]) -> AirflowFacts:
    """Read Airflow's own facet of a task or DAG run."""
    dag, dag_run, task, instance = (_part(facet, key) for key in ("dag", "dagRun", "task", "taskInstance"))
    return AirflowFacts(
        dag_id=name(dag, "dag_id") or name(dag_run, "dag_id"),
        dag_run_id=name(dag_run, "run_id"),
        task_id=name(task, "task_id"),
        try_number=number(instance, "try_number"),
        retries=number(task, "retries"),
        map_index=number(instance, "map_index"),
        log_url=name(instance, "log_url"),
    )


def _part(facet: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = facet.get(key)
    return found if isinstance(found, Mapping) else {}


def code_location(facet: Mapping[str, Any]) -> CodeLocation | None:
    """Read the location of the source code; None for an empty facet."""
    if not facet:
        return None
    return CodeLocation(
        type=name(facet, "type"),
        url=name(facet, "url"),
        repo_url=name(facet, "repoUrl"),
        path=name(facet, "path"),
        version=name(facet, "version"),
        branch=name(facet, "branch"),
    )


def neighbours(node: Node, facet: Mapping[str, Any]) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Return the tasks of the same DAG that Airflow runs before and after this one."""
    task = _part(facet, "task")
    task_id = text(task, "task_id")
    if task_id is None or not node.name.endswith(f".{task_id}"):
        return (), ()
    dag = node.name.removesuffix(task_id)

    def jobs(key: str) -> tuple[Node, ...]:
        names = (dag + name for name in _names(task.get(key)))
        return tuple(
            Node(kind=NodeKind.JOB, namespace=node.namespace, name=name)
            for name in names
            if len(name) <= NAME_LIMIT_CHARS
        )

    return jobs("upstream_task_ids"), jobs("downstream_task_ids")


def redact(value: str | None) -> str | None:
    """Replace each secret by `[redacted:<type>]`."""
    rules = policy()
    return None if value is None else redacted_text(rules, value, rules.message_level(0))


def fallback_error(run_facets: Mapping[str, Any], datasets: object) -> RunError | None:
    """Return the error of a run without an error facet: failed assertions, or the message of a result facet.

    dbt reports assertions for tests; other producers report a result facet.
    """
    failed = []
    for dataset in datasets if isinstance(datasets, list) else ():
        if not isinstance(dataset, Mapping):
            continue
        for key in ("inputFacets", "facets"):
            listed = _part(_part(dataset, key), "dataQualityAssertions").get("assertions")
            for one in listed if isinstance(listed, list) else ():
                if isinstance(one, Mapping) and one.get("success") is False:
                    column = f" on column {one['column']}" if isinstance(one.get("column"), str) else ""
                    failed.append(f"{one.get('assertion') or 'assertion'}{column} of {dataset.get('name')}")
    if failed:
        value = redact(f"test failed: {'; '.join(dict.fromkeys(failed))}") or ""
        return RunError(headline=value[:ERROR_LIMIT_CHARS])
    for name in sorted(run_facets):
        if "result" not in name.lower() and "error" not in name.lower():
            continue
        for part in (_part(run_facets, name), _part(_part(run_facets, name), "run_result")):
            if message := text(part, "message") or text(part, "error"):
                return RunError(headline=_both_ends((redact(message) or "").strip()))
    return None


def run_error(facet: Mapping[str, Any]) -> RunError | None:
    """Return the error of a failed run, with secrets redacted. Its class is often in the stack trace only."""
    message, stack = (redact(text(facet, key)) for key in ("message", "stackTrace"))
    if message is None and stack is None:
        return None
    raised_class, headline_text = headline(stack) if stack is not None else (None, "")
    value = message.strip() if message is not None else headline_text
    if raised_class is not None and headline(value)[0] is None:
        value = f"{raised_class}: {value}" if value else raised_class
    return RunError(headline=_both_ends(value), stack_trace=stack[-STACK_LIMIT_CHARS:] if stack else None)


def _both_ends(message: str) -> str:
    """Return a message without the middle of a long one: a log ends with the cause, a trace with its exception."""
    if len(message) <= ERROR_LIMIT_CHARS:
        return message
    half = (ERROR_LIMIT_CHARS - len(_OMITTED)) // 2
    return f"{message[:half]}{_OMITTED}{message[-half:]}"
