"""Section about the impact: the jobs and data sets downstream of the failure, worst first."""

import re
from collections.abc import Collection, Iterator, Sequence

from counterpoint.card.model import SHOWN_ROWS, CardSection, Line, section
from counterpoint.proto.findings import Downstream
from counterpoint.proto.tasks import Task
from counterpoint.proto.words import quantity

_STATEMENT = re.compile(r"\.sql\.\d+$")


def impact(task: Task, verbose: bool) -> CardSection:
    """Return what rests on it: what lineage knows before what is claimed, near before far, what is waited for by
    somebody before what nobody owns, jobs before data sets."""
    rows = task.findings.downstream if task.findings else ()
    merged: dict[tuple[str, str, str], list[Downstream]] = {}
    for row in rows:
        merged.setdefault((row.kind, row.namespace, row.name), []).append(row)
    ordered = sorted((rows for key, rows in merged.items() if not _is_statement(key, merged)), key=_worst)
    return section("impact", [*_lines(ordered, task, verbose), *_affected_besides(rows, task)])


def _is_statement(key: tuple[str, str, str], others: Collection[tuple[str, str, str]]) -> bool:
    """Return whether a job is a statement of a dbt model among the others."""
    kind, namespace, name = key
    return _STATEMENT.search(name) is not None and (kind, namespace, _STATEMENT.sub("", name)) in others


def _affected_besides(rows: Sequence[Downstream], task: Task) -> Iterator[Line]:
    """Yield the number of affected jobs that lineage did not list as downstream when it was asked."""
    known = {(row.namespace, row.name) for row in rows}
    affected = (task.context or {}).get("affected")
    failed = affected if isinstance(affected, list | tuple) else ()
    jobs = {(row.get("namespace"), row.get("name")) for row in failed if isinstance(row, dict)}
    if rows and (besides := jobs - known):
        yield f"besides {quantity(len(besides), 'job')} under affected"


def _worst(rows: Sequence[Downstream]) -> tuple[bool, int, bool, bool, str, str]:
    row = rows[0]
    return (
        row.claimed_by is not None,
        min(each.hops for each in rows),
        row.owner is None,
        row.kind != "job",
        row.namespace,
        row.name,
    )


def _lines(ordered: Sequence[Sequence[Downstream]], task: Task, verbose: bool) -> Iterator[Line]:
    shown = ordered if verbose else ordered[:SHOWN_ROWS]
    if len(ordered) > len(shown):
        yield _summary([rows[0] for rows in ordered])
    for rows in shown:
        row, hops = rows[0], min(each.hops for each in rows)
        notes = [] if any(each.edge == "data" for each in rows) else ["control dependency only"]
        if row.claimed_by is not None:
            notes.append(f"stated by {task.submitted_by}, unknown to lineage")
        yield (
            "directly" if hops <= 1 else f"{hops} hops away",
            "data set" if row.kind == "dataset" else row.kind,
            row.name,
            row.owner or "no owner",
            *(["; ".join(notes)] if notes else []),
        )
    if rest := [rows[0] for rows in ordered[len(shown) :]]:
        owners = _owners(rest)
        yield f"and {len(rest)} more" + (f", of {', '.join(owners[:5])}" if owners else "")


def _summary(rows: Sequence[Downstream]) -> str:
    jobs = sum(row.kind == "job" for row in rows)
    owners = _owners(rows)
    parts = [quantity(jobs, "job")] if jobs else []
    parts += [quantity(len(rows) - jobs, "data set")] if jobs < len(rows) else []
    return " and ".join(parts) + (f" of {quantity(len(owners), 'owner')}" if owners else "")


def _owners(rows: Sequence[Downstream]) -> list[str]:
    return list(dict.fromkeys(row.owner for row in rows if row.owner))
