"""Downstream of a task's target in lineage, with the submitter's own rows marked as claims."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from counterpoint.client import Memory, records
from counterpoint.graph.lineage import blast_radius_of
from counterpoint.graph.names import Node, dataset, job, node_of
from counterpoint.graph.radius import BlastRadius
from counterpoint.proto.findings import Downstream, Findings
from counterpoint.proto.memory import Get, QueryResult
from counterpoint.proto.records import RunJob
from counterpoint.proto.tasks import SubmitTask, Target

ROWS = 100
"""Maximum rows in findings, nearest first."""
CALLER = "caller"

_CLAIMS = TypeAdapter(tuple[Downstream, ...])


@dataclass(frozen=True)
class DownstreamLookup:
    """Result of the lookup. `name` is the target, None without one; `radius` is None if lineage does not know it."""

    name: str | None = None
    radius: BlastRadius | None = None


async def look_up_downstream(memory: Memory, target: Target | None) -> DownstreamLookup:
    """Look up the job, dataset or run of a task, and use the first that lineage knows.

    Raises `Transient` or `Denied`.
    """
    return await downstream_of(memory, target, await memory.query(*target_gets(target)))


def target_gets(target: Target | None) -> tuple[Get, ...]:
    """Return the queries for the job, dataset and run of a task."""
    if target is None:
        return ()
    gets = [Get(store=f"{node.kind}s", id=node.id) for node in _nodes_of(target)]
    return (*gets, *([Get(store="runs", id=target.run_id)] if target.run_id else []))


async def downstream_of(memory: Memory, target: Target | None, answers: Sequence[QueryResult]) -> DownstreamLookup:
    """Look up the downstream of the first that lineage knows, by the answers to `target_gets`.

    Raises `Transient` or `Denied`.
    """
    if target is None or not answers:
        return DownstreamLookup()
    nodes = _nodes_of(target)
    known_nodes = [node for node, answer in zip(nodes, answers, strict=False) if answer.items]
    known_nodes += [node_of(run.job) for answer in answers[len(nodes) :] for run in records(answer.items, RunJob)]
    name = f"{nodes[0].kind} {nodes[0]}" if nodes else f"run {target.run_id}"
    return DownstreamLookup(name, await blast_radius_of(memory, known_nodes[0]) if known_nodes else None)


def with_downstream(findings: Findings, task: SubmitTask, lookup: DownstreamLookup) -> Findings:
    """Return the findings with the rows of lineage, then those that only the submitter claims, and caveats about rows
    that are unreadable, unknown or omitted."""
    found = lookup.radius.downstream[:ROWS] if lookup.radius else ()
    claims, caveats = _claims(task)
    known_nodes = {_key(row) for row in (lookup.radius.downstream if lookup.radius else ())}
    more = [row.model_copy(update={"claimed_by": CALLER}) for row in claims if _key(row) not in known_nodes]
    if lookup.name and lookup.radius is None:
        caveats = (*caveats, f"lineage does not know the {lookup.name}: nothing downstream could be looked up")
    if lookup.radius and (lookup.radius.truncated or len(lookup.radius.downstream) > ROWS):
        caveats = (*caveats, f"the {lookup.name} has more downstream than listed: these are the nearest")
    return findings.model_copy(update={"downstream": (*found, *more[:ROWS]), "caveats": (*findings.caveats, *caveats)})


def _nodes_of(target: Target) -> list[Node]:
    nodes = [job(target.job.namespace, target.job.name)] if target.job else []
    return [*nodes, *([dataset(target.dataset.namespace, target.dataset.name)] if target.dataset else [])]


def _claims(task: SubmitTask) -> tuple[Sequence[Downstream], tuple[str, ...]]:
    claimed = (task.context or {}).get("downstream", ())
    try:
        return _CLAIMS.validate_python(claimed), ()
    except ValidationError as unreadable:
        first = unreadable.errors()[0]
        field = ".".join(map(str, ("context", "downstream", *first["loc"])))
        return (), (f"context.downstream is not a list of jobs and datasets: {field}: {first['msg']}",)


def _key(row: Downstream) -> tuple[str, str, str]:
    return row.kind, row.namespace, row.name
