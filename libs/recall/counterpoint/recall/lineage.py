"""What memory knows about where a job or dataset stands: its blast radius (row F3) and its lineage (row F2).

Memory walks the edges; what the walks bring home is judged by `counterpoint.recall.radius`.
"""

from collections.abc import Iterable

from counterpoint.proto.tasks import JobRef
from counterpoint.recall.edges import Edge
from counterpoint.recall.names import Node, NodeKind, job
from counterpoint.recall.radius import Direction, Lineage, Owners, Radius, blast_radius, lineage
from counterpoint.recall.walks import Asks, Graph

_STEPS_A_HOP = 4
"""Edges in one hop from job to job, at most: to a whole's dataset, out of it, down to a part, and to a part of that."""


async def blast_radius_of(
    memory: Asks,
    start: JobRef | Node,
    *,
    depth: int = 20,
    limit: int = 500,
    also: Iterable[Edge] = (),
    owned: Owners | None = None,
    graph: Graph | None = None,
) -> Radius:
    """What rests on a job or dataset, at most `depth` hops and `limit` nodes; nothing does on an unknown one.

    `also` and `owned` are edges and owners that memory does not hold yet, `graph` are edges that were read before.
    Raises `Transient` or `Denied`.
    """
    node = _node(start)
    graph = Graph(memory, also) if graph is None else graph
    await graph.read(down=await graph.wholes({node.ref}), depth=_steps(depth))
    reached = blast_radius(node, graph.edges, {}, depth=depth, limit=limit)
    rows = (Node(kind=NodeKind(row.kind), namespace=row.namespace, name=row.name) for row in reached.downstream)
    owners = {**await graph.owners({node.ref, *(row.ref for row in rows)}), **(owned or {})}
    return blast_radius(node, graph.edges, owners, depth=depth, limit=limit, partial=graph.partial)


async def lineage_of(
    memory: Asks, start: JobRef | Node, *, depth: int = 20, direction: Direction = Direction.BOTH, limit: int = 500
) -> Lineage:
    """The graph around a job or dataset, at most `depth` hops and `limit` nodes each way.

    Raises `Transient` or `Denied`.
    """
    node, graph = _node(start), Graph(memory)
    parts = await graph.parts({node.ref})
    if direction in (Direction.DOWN, Direction.BOTH):
        await graph.read(down=parts, depth=_steps(depth))
    if direction in (Direction.UP, Direction.BOTH):
        walked, ahead = set[str](), parts
        while ahead:
            await graph.read(up=ahead, depth=_steps(depth))
            walked |= graph.within("up", ahead, _steps(depth))
            ahead = await graph.parts(walked) - walked
    around = lineage(node, graph.edges, {}, depth=depth, direction=direction, limit=limit)
    owners = await graph.owners({place.node.ref for place in around.nodes})
    return lineage(node, graph.edges, owners, depth=depth, direction=direction, limit=limit, partial=graph.partial)


def _steps(depth: int) -> int:
    return min(100, max(1, depth) * _STEPS_A_HOP)


def _node(start: JobRef | Node) -> Node:
    return start if isinstance(start, Node) else job(start.namespace, start.name)
