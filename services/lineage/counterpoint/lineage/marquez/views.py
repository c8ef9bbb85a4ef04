"""Lineage records as JSON of Marquez's read API."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import Node, NodeKind, node_of
from counterpoint.graph.radius import Lineage, LineageNode
from counterpoint.lineage.openlineage.events import EventType
from counterpoint.lineage.records import JobRecord, RunRecord

_STATES: Mapping[EventType, str] = {
    EventType.COMPLETE: "COMPLETED",
    EventType.FAIL: "FAILED",
    EventType.ABORT: "ABORTED",
}


def job_view(
    job: JobRecord, node: Node, edges: Iterable[LineageEdge], updated_at: datetime, latest: RunRecord | None
) -> dict[str, Any]:
    """Return a job; `inputs` and `outputs` are the union over all its runs."""
    return {
        **_job(node, edges),
        "updatedAt": updated_at.isoformat(),
        "parentJobName": node_of(job.parent).name if job.parent else None,
        "location": job.code.url if job.code else None,
        "latestRun": run_view(latest) if latest else None,
        "facets": {"ownership": {"owners": [{"name": name} for name in job.owners]}},
    }


def run_view(run: RunRecord) -> dict[str, Any]:
    """Return a run."""
    took = run.ended_at - run.started_at if run.started_at and run.ended_at else None
    return {
        "id": run.run_id,
        "state": _STATES.get(run.state, "RUNNING"),
        "nominalStartTime": _text(run.nominal_start),
        "nominalEndTime": _text(run.nominal_end),
        "startedAt": _text(run.started_at),
        "endedAt": _text(run.ended_at),
        "durationMs": int(took.total_seconds() * 1000) if took is not None else None,
        "facets": {"errorMessage": {"message": run.error_message}} if run.error_message else {},
    }


def graph_view(lineage: Lineage) -> dict[str, Any]:
    """Return a lineage graph: its nodes, each with its edges."""
    flows = [edge for edge in lineage.edges if edge.kind is not EdgeKind.PARENT]
    return {"graph": [_node(row, flows) for row in sorted(lineage.nodes, key=lambda row: node_id(row.node))]}


def node_id(node: Node) -> str:
    """Return `job:<namespace>:<name>` or `dataset:<namespace>:<name>`."""
    return f"{node.kind}:{node.namespace}:{node.name}"


def parse_node_id(text: str) -> Iterator[Node]:
    """Yield the nodes a node id may mean: namespaces may contain colons, so a split is ambiguous."""
    kind, _, rest = text.partition(":")
    if kind not in {known.value for known in NodeKind}:
        return
    for index, sign in enumerate(rest):
        if sign == ":" and rest[:index] and rest[index + 1 :]:
            yield Node(kind=NodeKind(kind), namespace=rest[:index], name=rest[index + 1 :])


def _node(row: LineageNode, flows: Iterable[LineageEdge]) -> dict[str, Any]:
    node = row.node
    adjacent = [edge for edge in flows if node.ref in (edge.source, edge.target)]
    data = _job(node, adjacent) if node.kind is NodeKind.JOB else _dataset(node)
    return {
        "id": node_id(node),
        "type": node.kind.upper(),
        "data": data | {"facets": {"ownership": {"owners": [{"name": row.owner}]}} if row.owner else {}},
        "inEdges": [_edge(edge) for edge in adjacent if edge.target == node.ref],
        "outEdges": [_edge(edge) for edge in adjacent if edge.source == node.ref],
    }


def _job(node: Node, edges: Iterable[LineageEdge]) -> dict[str, Any]:
    pairs = [edge.ends for edge in edges if edge.kind is EdgeKind.DATA]
    return _id(node) | {
        "type": "BATCH",
        "simpleName": node.name.rsplit(".", 1)[-1],
        "inputs": _names(source for source, target in pairs if target == node),
        "outputs": _names(target for source, target in pairs if source == node),
    }


def _dataset(node: Node) -> dict[str, Any]:
    return _id(node) | {"type": "DB_TABLE", "physicalName": node.name}


def _id(node: Node) -> dict[str, Any]:
    name = {"namespace": node.namespace, "name": node.name}
    return {"id": name, **name}


def _names(nodes: Iterable[Node]) -> list[dict[str, str]]:
    return [{"namespace": node.namespace, "name": node.name} for node in sorted(nodes, key=lambda node: node.ref)]


def _edge(edge: LineageEdge) -> dict[str, str]:
    source, target = edge.ends
    return {"origin": node_id(source), "destination": node_id(target)}


def _text(moment: datetime | None) -> str | None:
    return moment.isoformat() if moment else None
