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
"""Edges of one walk, at most: a reply must fit into a message of the bus."""
MAX_DEPTH = 80
"""Edges in the longest way that is followed: twenty hops from job to job."""
OWNER_DEPTH = 3
"""Edges from a dataset to the job that writes it, and to all that this is part of."""
_STARTS, _GETS = 100, 200

WalkDirection = Literal["up", "down"]


class QueryClient(Protocol):
    """A client that answers memory queries."""

    async def query(self, *queries: MemoryQuery) -> tuple[QueryResult, ...]:
        """Answers in the order of the queries. Raises `Transient` or `Denied`."""


class LineageGraph:
    """The edges read so far, by nodes given as `Node.ref`; `partial` when one had more to bring than it could.

    `also` are edges that memory does not hold yet.
    """

    def __init__(self, memory: QueryClient, also: Iterable[LineageEdge] = ()) -> None:
        self._memory = memory
        self._edges = {edge.id: edge for edge in also}
        self._known: Mapping[WalkDirection, set[str]] = {"up": set(), "down": set()}
        self.partial = False

    @property
    def edges(self) -> list[LineageEdge]:
        """All edges that are here."""
        return list(self._edges.values())

    def walks(self, way: WalkDirection, start: Iterable[str], depth: int = MAX_DEPTH) -> list[EdgeWalk]:
        """The walks that bring the edges within `depth` of `start`; none where all of them are here."""
        refs = sorted(self.within(way, start, depth - 1) - self._known[way])
        return [
            EdgeWalk(store="edges", start=tuple(refs[at : at + _STARTS]), direction=way, depth=depth, limit=EDGES_LIMIT)
            for at in range(0, len(refs), _STARTS)
        ]

    def take(self, walk: EdgeWalk, found: QueryResult) -> bool:
        """Keep the edges of an answer; whether it holds all that was asked for."""
        edges = records(found.items, LineageEdge)
        self._edges |= {edge.id: edge for edge in edges}
        whole = not found.partial and len(found.items) < walk.limit
        if whole and walk.direction != "both":
            self._known[walk.direction].update(_within(walk.direction, walk.start, walk.depth - 1, edges))
        return whole

    async def read(
        self, *, up: Iterable[str] = (), down: Iterable[str] = (), depth: int = MAX_DEPTH, strict: bool = True
    ) -> None:
        """Read the edges within `depth` of these, up and down at once.

        Where not `strict` it is a look ahead: a cut answer is no matter. Raises `Transient` or `Denied`.
        """
        walks = [*self.walks("up", up, depth), *self.walks("down", down, depth)]
        if not walks:
            return
        for walk, found in zip(walks, await self._memory.query(*walks), strict=True):
            whole = self.take(walk, found)
            self.partial = self.partial or (strict and not whole)

    def within(self, way: WalkDirection, start: Iterable[str], depth: int) -> set[str]:
        """These and the nodes within `depth` edges, as far as edges are here."""
        return _within(way, start, depth, self._edges.values())

    async def wholes(self, refs: Iterable[str]) -> set[str]:
        """These and all they are part of; reads whatever else leads to each. Raises `Transient` or `Denied`."""
        return await self._family(refs, "up")

    async def parts(self, refs: Iterable[str]) -> set[str]:
        """These and all that is part of them; reads whatever else each leads to. Raises `Transient` or `Denied`."""
        return await self._family(refs, "down")

    async def owners(self, refs: set[str]) -> Owners:
        """The owners of these, of what they are part of, and of the jobs that write them.

        Raises `Transient` or `Denied`.
        """
        await self.read(up=refs, depth=OWNER_DEPTH, strict=False)
        wholes = await self.wholes(refs)
        written = ((edge.source, edge.target) for edge in self._edges.values() if edge.kind is EdgeKind.DATA)
        writers = {source for source, target in written if target in refs and node_of(source).kind is NodeKind.JOB}
        nodes = [node_of(ref) for ref in sorted(wholes | await self.wholes(writers))]
        owners: dict[str, tuple[str, ...]] = {}
        for at in range(0, len(nodes), _GETS):
            batch = nodes[at : at + _GETS]
            found = await self._memory.query(*(Get(store=f"{node.kind}s", id=node.id) for node in batch))
            for node, answer in zip(batch, found, strict=True):
                for one in records(answer.items, OwnedNode):
                    owners[node.ref] = one.owners
        return owners

    async def _family(self, begin: Iterable[str], way: WalkDirection) -> set[str]:
        found, ahead = set[str](), set(begin)
        while ahead:
            found |= ahead
            await self.read(up=ahead if way == "up" else (), down=ahead if way == "down" else (), depth=1)
            kin = [edge for edge in self._edges.values() if edge.kind is EdgeKind.PARENT]
            ahead = _within(way, ahead, 1, kin) - found
        return found


def _within(way: WalkDirection, start: Iterable[str], steps: int, edges: Iterable[LineageEdge]) -> set[str]:
    """The nodes that edges lead to within so many steps, those of the start among them."""
    following: dict[str, list[str]] = {}
    for edge in edges:
        at, to = (edge.target, edge.source) if way == "up" else (edge.source, edge.target)
        following.setdefault(at, []).append(to)
    found, ahead = set(start), set(start)
    for _ in range(steps):
        ahead = {to for at in ahead for to in following.get(at, ())} - found
        if not ahead:
            break
        found |= ahead
    return found
