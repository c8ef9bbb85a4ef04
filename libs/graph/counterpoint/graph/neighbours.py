"""Jobs upstream and downstream of a job: the relation of the blast radius, read in both directions."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import Node, job
from counterpoint.graph.radius import FLOW_KINDS, blast_radius
from counterpoint.graph.walks import EDGES_LIMIT, MAX_DEPTH, LineageGraph

_Up = Mapping[str, list[tuple[EdgeKind, str]]]
"""Kind and source of the edges that lead to each node."""


def jobs_above(graph: LineageGraph, start: str, others: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return those of `others`, each with its parents, that have the job `start` in their blast radius.

    The edges upstream of the job must have been read.
    """
    up: dict[str, list[tuple[EdgeKind, str]]] = defaultdict(list)
    for edge in graph.edges:
        up[edge.target].append((edge.kind, edge.source))
    reached, frontier, sources = {start}, [start], set[str]()
    while frontier:
        for kind, source in up.get(frontier.pop(), ()):
            if kind in FLOW_KINDS:
                sources.add(source)
            if source not in reached:
                # A walk that reaches a parent reaches its parts, so that a path to the parent leads to the job.
                reached.add(source)
                frontier.append(source)
    parents = set[str]().union(*(_with_parents(source, up) for source in sources))
    out = _with_parents(start, up)
    return frozenset(
        other
        for other, own_parents in others.items()
        if other not in out
        and start not in own_parents
        and (other in parents or any(parent in sources for parent in own_parents))
    )


def jobs_below(graph: LineageGraph, node: Node, parents: Collection[str]) -> frozenset[str]:
    """Return the jobs downstream of a node with these parents. The edges downstream of all must have been read."""
    part_of = [LineageEdge(kind=EdgeKind.PARENT, source=parent, target=node.ref) for parent in parents]
    reached = blast_radius(node, [*graph.edges, *part_of], {}, depth=MAX_DEPTH, limit=EDGES_LIMIT)
    return frozenset(job(row.namespace, row.name).ref for row in reached.downstream if row.kind == "job")


def _with_parents(job: str, up: _Up) -> set[str]:
    """Return a job and its parents, transitively."""
    found, frontier = {job}, [job]
    while frontier:
        for kind, source in up.get(frontier.pop(), ()):
            if kind is EdgeKind.PARENT and source not in found:
                found.add(source)
                frontier.append(source)
    return found
