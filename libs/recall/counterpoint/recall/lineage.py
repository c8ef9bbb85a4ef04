"""What memory knows about where a job or dataset stands: its blast radius (row F3) and its lineage (row F2).

Memory walks the edges; what the walks bring home is judged by `counterpoint.recall.radius`.
"""

from collections.abc import Iterable

from counterpoint.proto.memory import Get, Walk
from counterpoint.proto.messages import Shape
from counterpoint.proto.tasks import JobRef
from counterpoint.recall.edges import Edge, EdgeKind
from counterpoint.recall.memory import Memory, record
from counterpoint.recall.names import Node, NodeKind, job, node_of
from counterpoint.recall.radius import Direction, Lineage, Owners, Radius, blast_radius, lineage

EDGES_LIMIT = 1000
"""Edges that one walk brings home, at most: a reply has to fit into a message of the bus."""

_STEPS_A_HOP = 4
"""Edges in one hop from job to job, at most: to a whole's dataset, out of it, down to a part, and to a part of that."""
_STARTS, _GETS = 100, 200


class _Owned(Shape):
    owners: tuple[str, ...] = ()


async def blast_radius_of(
    memory: Memory,
    start: JobRef | Node,
    *,
    depth: int = 20,
    limit: int = 500,
    also: Iterable[Edge] = (),
    owned: Owners | None = None,
) -> Radius:
    """What rests on a job or dataset, at most `depth` hops and `limit` nodes; nothing does on an unknown one.

    `also` and `owned` are edges and owners that memory does not hold yet. Raises `Transient` or `Denied`.
    """
    node, graph = _node(start), _Graph(memory, also)
    whole = await graph.wholes({node.ref})
    await graph.walk(graph.closure(whole), Direction.DOWN, depth)
    reached = blast_radius(node, graph.edges, {}, depth=depth, limit=limit)
    rows = (Node(kind=NodeKind(row.kind), namespace=row.namespace, name=row.name) for row in reached.downstream)
    owners = {**await graph.owners({node.ref, *(row.ref for row in rows)}), **(owned or {})}
    return blast_radius(node, graph.edges, owners, depth=depth, limit=limit, partial=graph.partial)


async def lineage_of(
    memory: Memory, start: JobRef | Node, *, depth: int = 20, direction: Direction = Direction.BOTH, limit: int = 500
) -> Lineage:
    """The graph around a job or dataset, at most `depth` hops and `limit` nodes each way.

    Raises `Transient` or `Denied`.
    """
    node, graph = _node(start), _Graph(memory, ())
    parts = await graph.parts({node.ref})
    if direction in (Direction.DOWN, Direction.BOTH):
        await graph.walk(parts, Direction.DOWN, depth)
    if direction in (Direction.UP, Direction.BOTH):
        walked, ahead = set[str](), parts
        while ahead:
            edges = await graph.walk(ahead, Direction.UP, depth)
            walked |= ahead | {edge.source for edge in edges}
            ahead = await graph.parts(walked) - walked
    around = lineage(node, graph.edges, {}, depth=depth, direction=direction, limit=limit)
    owners = await graph.owners({place.node.ref for place in around.nodes})
    return lineage(node, graph.edges, owners, depth=depth, direction=direction, limit=limit, partial=graph.partial)


class _Graph:
    """The edges read so far, by nodes given as `Node.ref`; `partial` when a walk had more to bring than it could."""

    def __init__(self, memory: Memory, also: Iterable[Edge]) -> None:
        self._memory = memory
        self._edges = {edge.id: edge for edge in also}
        self.partial = False

    @property
    def edges(self) -> list[Edge]:
        return list(self._edges.values())

    def closure(self, start: set[str]) -> set[str]:
        """What is reached from `start` by the edges that are here."""
        found, ahead = set[str](), start
        while ahead:
            found |= ahead
            ahead = {edge.target for edge in self._edges.values() if edge.source in ahead} - found
        return found

    async def walk(self, start: set[str], way: Direction, depth: int) -> list[Edge]:
        """The edges within `depth` hops of `start`."""
        return await self._read(start, way, min(100, max(1, depth) * _STEPS_A_HOP))

    async def wholes(self, refs: set[str]) -> set[str]:
        """These and all they are part of; reads whatever else leads to each."""
        return await self._family(refs, Direction.UP)

    async def parts(self, refs: set[str]) -> set[str]:
        """These and all that is part of them; reads whatever else each leads to."""
        return await self._family(refs, Direction.DOWN)

    async def owners(self, refs: set[str]) -> Owners:
        """The owners of these, of what they are part of, and of the jobs that write them."""
        wholes = await self.wholes(refs)
        written = ((edge.source, edge.target) for edge in self._edges.values() if edge.kind is EdgeKind.DATA)
        writers = {source for source, target in written if target in refs and node_of(source).kind is NodeKind.JOB}
        nodes = [node_of(ref) for ref in sorted(wholes | await self.wholes(writers))]
        owners: dict[str, tuple[str, ...]] = {}
        for at in range(0, len(nodes), _GETS):
            batch = nodes[at : at + _GETS]
            found = await self._memory.query(*(Get(store=f"{node.kind}s", id=node.id) for node in batch))
            for node, answer in zip(batch, found, strict=True):
                if answer.items:
                    owners[node.ref] = record(answer.items[0], _Owned).owners
        return owners

    async def _family(self, begin: set[str], way: Direction) -> set[str]:
        found, ahead = set[str](), begin
        while ahead:
            found |= ahead
            refs = sorted(ahead)
            for at in range(0, len(refs), _STARTS):
                await self._read(refs[at : at + _STARTS], way, 1)
            pairs = ((e.target, e.source) for e in self._edges.values() if e.kind is EdgeKind.PARENT)
            pairs = pairs if way is Direction.UP else ((source, target) for target, source in pairs)
            ahead = {to for at, to in pairs if at in ahead} - found
        return found

    async def _read(self, start: Iterable[str], way: Direction, depth: int) -> list[Edge]:
        refs = tuple(sorted(start))
        direction = "up" if way is Direction.UP else "down"
        walk = Walk(store="edges", start=refs, direction=direction, depth=depth, limit=EDGES_LIMIT)
        (answer,) = await self._memory.query(walk)
        edges = [record(item, Edge) for item in answer.items]
        self.partial = self.partial or answer.partial or len(edges) >= EDGES_LIMIT
        self._edges |= {edge.id: edge for edge in edges}
        return edges


def _node(start: JobRef | Node) -> Node:
    return start if isinstance(start, Node) else job(start.namespace, start.name)
