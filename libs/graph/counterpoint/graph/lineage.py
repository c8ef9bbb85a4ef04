"""Blast radius and lineage of a job or dataset, from edges in memory.

Memory walks the edges; `counterpoint.graph.radius` computes the result from them.
"""

from collections.abc import Collection

from counterpoint.graph.names import Node, NodeKind, job
from counterpoint.graph.radius import BlastRadius, Direction, Lineage, Owners, blast_radius, lineage, owners_by_lineage
from counterpoint.graph.walks import LineageGraph, QueryClient
from counterpoint.proto.tasks import JobRef

_STEPS_A_HOP = 4
"""Maximum edges in one hop between jobs: to a parent's dataset, from it, to a part, and to a part of that."""


async def blast_radius_of(
    memory: QueryClient,
    start: JobRef | Node,
    *,
    depth: int = 20,
    limit: int = 500,
    extra_owners: Owners | None = None,
    graph: LineageGraph | None = None,
    as_of: str | None = None,
) -> BlastRadius:
    """Return the nodes downstream of a job or dataset, at most `depth` hops and `limit` nodes; none if it is unknown.

    `extra_owners` are not in memory yet. `graph` has the edges read before. `as_of` is a past moment. Raises
    `Transient`, `Denied`, and `Permanent` for an unknown moment.
    """
    node = _node(start)
    graph = LineageGraph(memory, as_of=as_of) if graph is None else graph
    await graph.read(down=await graph.with_parents({node.ref}), depth=_steps(depth))
    reached = blast_radius(node, graph.edges, {}, depth=depth, limit=limit)
    rows = (Node(kind=NodeKind(row.kind), namespace=row.namespace, name=row.name) for row in reached.downstream)
    owners = {**await graph.owners({node.ref, *(row.ref for row in rows)}), **(extra_owners or {})}
    return blast_radius(node, graph.edges, owners, depth=depth, limit=limit, partial=graph.partial)


async def lineage_of(
    memory: QueryClient,
    start: JobRef | Node,
    *,
    depth: int = 20,
    direction: Direction = Direction.BOTH,
    limit: int = 500,
    as_of: str | None = None,
) -> Lineage:
    """Return the graph around a job or dataset, at most `depth` hops and `limit` nodes in each direction.

    `as_of` is a past moment. Raises `Transient`, `Denied`, and `Permanent` for an unknown moment.
    """
    node, graph = _node(start), LineageGraph(memory, as_of=as_of)
    parts = await graph.with_parts({node.ref})
    if direction in (Direction.DOWN, Direction.BOTH):
        await graph.read(down=parts, depth=_steps(depth))
    if direction in (Direction.UP, Direction.BOTH):
        walked, ahead = set[str](), parts
        while ahead:
            await graph.read(up=ahead, depth=_steps(depth))
            walked |= graph.reachable("up", ahead, _steps(depth))
            ahead = await graph.with_parts(walked) - walked
    around = lineage(node, graph.edges, {}, depth=depth, direction=direction, limit=limit)
    owners = await graph.owners({row.node.ref for row in around.nodes})
    return lineage(node, graph.edges, owners, depth=depth, direction=direction, limit=limit, partial=graph.partial)


async def owners_of(memory: QueryClient, nodes: Collection[Node]) -> dict[str, tuple[str, ...]]:
    """Return the owners of nodes by `Node.ref`: their own, else those of their parents and of the jobs that write them.

    Raises `Transient` or `Denied`.
    """
    graph = LineageGraph(memory)
    known = await graph.owners({node.ref for node in nodes}) if nodes else {}
    return owners_by_lineage(nodes, graph.edges, known)


def _steps(depth: int) -> int:
    return min(100, max(1, depth) * _STEPS_A_HOP)


def _node(start: JobRef | Node) -> Node:
    return start if isinstance(start, Node) else job(start.namespace, start.name)
