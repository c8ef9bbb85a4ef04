"""Jobs upstream and downstream of a job: the relation of the blast radius, read in both directions."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import Node, job
from counterpoint.graph.radius import FLOW_KINDS, blast_radius
from counterpoint.graph.walks import EDGES_LIMIT, MAX_DEPTH, LineageGraph

_Up = Mapping[str, list[tuple[EdgeKind, str]]]
"""The edges that lead to a node: their kinds and where they come from."""


def jobs_above(graph: LineageGraph, start: str, others: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return those of `others`, each with the jobs it is part of, that have a job in their blast radius.

    The way up from the job must have been read.
    """
    up: dict[str, list[tuple[EdgeKind, str]]] = defaultdict(list)
    for edge in graph.edges:
        up[edge.target].append((edge.kind, edge.source))
    reached, ahead, sources = {start}, [start], set[str]()
    while ahead:
        for kind, source in up.get(ahead.pop(), ()):
            if kind in FLOW_KINDS:
                sources.add(source)
            if source not in reached:
                # A whole that is reached brings its parts, so what leads to the whole leads to the job.
                reached.add(source)
                ahead.append(source)
    wholes = set[str]().union(*(_family(source, up) for source in sources))
    out = _family(start, up)
    return frozenset(
        other
        for other, within in others.items()
        if other not in out and start not in within and (other in wholes or any(whole in sources for whole in within))
    )


def jobs_below(graph: LineageGraph, node: Node, within: Collection[str] = ()) -> frozenset[str]:
    """The jobs downstream of one, which is part of the jobs `within`. The way down from all must have been read."""
    part_of = [LineageEdge(kind=EdgeKind.PARENT, source=whole, target=node.ref) for whole in within]
    reached = blast_radius(node, [*graph.edges, *part_of], {}, depth=MAX_DEPTH, limit=EDGES_LIMIT)
    return frozenset(job(row.namespace, row.name).ref for row in reached.downstream if row.kind == "job")


def _family(job: str, up: _Up) -> set[str]:
    """The job and all it is part of."""
    found, ahead = {job}, [job]
    while ahead:
        for kind, source in up.get(ahead.pop(), ()):
            if kind is EdgeKind.PARENT and source not in found:
                found.add(source)
                ahead.append(source)
    return found
