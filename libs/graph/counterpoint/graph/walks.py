"""Edges read from memory by walks; edges read once are not read again."""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

from counterpoint.client.readable import records
from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import NodeKind, node_of
from counterpoint.graph.radius import Owners
from counterpoint.proto.memory import EdgeWalk, Get, MemoryQuery, QueryResult
from counterpoint.proto.records import OwnedNode

EDGES_LIMIT = 1000
"""Maximum edges of one walk, so that the reply fits into a message of the bus."""
MAX_DEPTH = 80
"""Maximum edges in a path: twenty hops from job to job."""
OWNER_DEPTH = 3
"""Edges from a dataset to the job that writes it, and to the parents of that job."""
_STARTS, _GETS = 100, 200

WalkDirection = Literal["up", "down"]


class QueryClient(Protocol):
    """A client that answers memory queries."""

    async def query(self, *queries: MemoryQuery) -> tuple[QueryResult, ...]:
        """Return the answers in the order of the queries. Raises `Transient` or `Denied`."""


class LineageGraph:
    """The edges read so far; nodes are given as `Node.ref`. `partial`: the reply to a walk was cut at its limit.

    `extra_edges` are not in memory yet. `as_of` is a past moment, whose edges and owners are read.
    """

    def __init__(
        self, memory: QueryClient, extra_edges: Iterable[LineageEdge] = (), *, as_of: str | None = None
    ) -> None:
        self._memory = memory
        self._as_of = as_of
        self._edges = {edge.id: edge for edge in extra_edges}
        self._complete_from: Mapping[WalkDirection, set[str]] = {"up": set(), "down": set()}
        self.partial = False

    @property
    def edges(self) -> list[LineageEdge]:
        """All edges read so far."""
        return list(self._edges.values())

    def walks(self, direction: WalkDirection, start: Iterable[str], depth: int = MAX_DEPTH) -> list[EdgeWalk]:
        """Return the walks that read the missing edges within `depth` of `start`."""
        refs = sorted(self.reachable(direction, start, depth - 1) - self._complete_from[direction])
        return [
            EdgeWalk(
                store="edges",
                start=tuple(refs[index : index + _STARTS]),
                direction=direction,
                depth=depth,
                limit=EDGES_LIMIT,
                as_of=self._as_of,
            )
            for index in range(0, len(refs), _STARTS)
        ]

    def add(self, walk: EdgeWalk, result: QueryResult) -> bool:
        """Add the edges of an answer, and return whether it is complete."""
        edges = records(result.items, LineageEdge)
        self._edges |= {edge.id: edge for edge in edges}
        complete = not result.partial and len(result.items) < walk.limit
        if complete and walk.direction != "both":
            self._complete_from[walk.direction].update(_reachable(walk.direction, walk.start, walk.depth - 1, edges))
        return complete

    async def read(
        self, *, up: Iterable[str] = (), down: Iterable[str] = (), depth: int = MAX_DEPTH, strict: bool = True
    ) -> None:
        """Read the edges within `depth` of these nodes, upstream and downstream in one request.

        Unless `strict` it is a prefetch, which may be incomplete. Raises `Transient` or `Denied`.
        """
        walks = [*self.walks("up", up, depth), *self.walks("down", down, depth)]
        if not walks:
            return
        for walk, result in zip(walks, await self._memory.query(*walks), strict=True):
            complete = self.add(walk, result)
            self.partial = self.partial or (strict and not complete)

    def reachable(self, direction: WalkDirection, start: Iterable[str], depth: int) -> set[str]:
        """Return these nodes and those within `depth` edges that have been read."""
        return _reachable(direction, start, depth, self._edges.values())

    async def with_parents(self, refs: Iterable[str]) -> set[str]:
        """Return these nodes and their parents, transitively. Raises `Transient` or `Denied`."""
        return await self._family(refs, "up")

    async def with_parts(self, refs: Iterable[str]) -> set[str]:
        """Return these nodes and their parts, transitively. Raises `Transient` or `Denied`."""
        return await self._family(refs, "down")

    async def owners(self, refs: set[str]) -> Owners:
        """Return the owners of these nodes, of their parents, of the jobs that write them, and of the datasets that
        they write as far as those were read before.

        Raises `Transient` or `Denied`.
        """
        await self.read(up=refs, depth=OWNER_DEPTH, strict=False)
        family = await self.with_parents(refs)
        flows = [(edge.source, edge.target) for edge in self._edges.values() if edge.kind is EdgeKind.DATA]
        writers = {source for source, target in flows if target in refs and node_of(source).kind is NodeKind.JOB}
        written = {target for source, target in flows if source in refs and node_of(source).kind is NodeKind.JOB}
        nodes = [node_of(ref) for ref in sorted(family | written | await self.with_parents(writers))]
        owners: dict[str, tuple[str, ...]] = {}
        for index in range(0, len(nodes), _GETS):
            batch = nodes[index : index + _GETS]
            gets = (Get(store=f"{node.kind}s", id=node.id, as_of=self._as_of) for node in batch)
            answers = await self._memory.query(*gets)
            for node, answer in zip(batch, answers, strict=True):
                for record in records(answer.items, OwnedNode):
                    owners[node.ref] = record.owners
        return owners

    async def _family(self, begin: Iterable[str], direction: WalkDirection) -> set[str]:
        result, frontier = set[str](), set(begin)
        while frontier:
            result |= frontier
            await self.read(
                up=frontier if direction == "up" else (), down=frontier if direction == "down" else (), depth=1
            )
            parent_edges = [edge for edge in self._edges.values() if edge.kind is EdgeKind.PARENT]
            frontier = _reachable(direction, frontier, 1, parent_edges) - result
        return result


def _reachable(direction: WalkDirection, start: Iterable[str], steps: int, edges: Iterable[LineageEdge]) -> set[str]:
    """Return the start nodes and those that edges lead to within `steps` steps."""
    following: dict[str, list[str]] = {}
    for edge in edges:
        origin, to = (edge.target, edge.source) if direction == "up" else (edge.source, edge.target)
        following.setdefault(origin, []).append(to)
    result, frontier = set(start), set(start)
    for _ in range(steps):
        frontier = {to for node in frontier for to in following.get(node, ())} - result
        if not frontier:
            break
        result |= frontier
    return result
