"""Edges read from memory by walks; what one walk has brought home is not read by another."""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol

from counterpoint.proto.memory import Found, Get, MemoryQuery, Walk
from counterpoint.proto.records import Named
from counterpoint.recall.edges import Edge, EdgeKind
from counterpoint.recall.names import NodeKind, node_of
from counterpoint.recall.radius import Owners
from counterpoint.recall.readable import records

EDGES_LIMIT = 1000
"""Edges that one walk brings home, at most: a reply has to fit into a message of the bus."""
FAR = 80
"""Edges in the longest way that is followed: twenty hops from job to job."""
NEAR = 3
"""Edges from a dataset to the job that writes it, and to all that this is part of."""
_STARTS, _GETS = 100, 200

Way = Literal["up", "down"]


class Asks(Protocol):
    """Something that answers queries: the memory of a delivery, or what stands before it."""

    async def query(self, *queries: MemoryQuery) -> tuple[Found, ...]:
        """Answers in the order of the queries. Raises `Transient` or `Denied`."""


class Graph:
    """The edges read so far, by nodes given as `Node.ref`; `partial` when one had more to bring than it could.

    `also` are edges that memory does not hold yet.
    """

    def __init__(self, memory: Asks, also: Iterable[Edge] = ()) -> None:
        self._memory = memory
        self._edges = {edge.id: edge for edge in also}
        self._known: Mapping[Way, set[str]] = {"up": set(), "down": set()}
        self.partial = False

    @property
    def edges(self) -> list[Edge]:
        """All edges that are here."""
        return list(self._edges.values())

    def walks(self, way: Way, start: Iterable[str], depth: int = FAR) -> list[Walk]:
        """The walks that bring the edges within `depth` of `start`; none where all of them are here."""
        refs = sorted(self.within(way, start, depth - 1) - self._known[way])
        return [
            Walk(store="edges", start=tuple(refs[at : at + _STARTS]), direction=way, depth=depth, limit=EDGES_LIMIT)
            for at in range(0, len(refs), _STARTS)
        ]

    def take(self, walk: Walk, found: Found) -> bool:
        """Keep the edges of an answer; whether it holds all that was asked for."""
        edges = records(found.items, Edge)
        self._edges |= {edge.id: edge for edge in edges}
        whole = not found.partial and len(found.items) < walk.limit
        if whole and walk.direction != "both":
            self._known[walk.direction].update(_within(walk.direction, walk.start, walk.depth - 1, edges))
        return whole

    async def read(
        self, *, up: Iterable[str] = (), down: Iterable[str] = (), depth: int = FAR, strict: bool = True
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

    def within(self, way: Way, start: Iterable[str], depth: int) -> set[str]:
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
        await self.read(up=refs, depth=NEAR, strict=False)
        wholes = await self.wholes(refs)
        written = ((edge.source, edge.target) for edge in self._edges.values() if edge.kind is EdgeKind.DATA)
        writers = {source for source, target in written if target in refs and node_of(source).kind is NodeKind.JOB}
        nodes = [node_of(ref) for ref in sorted(wholes | await self.wholes(writers))]
        owners: dict[str, tuple[str, ...]] = {}
        for at in range(0, len(nodes), _GETS):
            batch = nodes[at : at + _GETS]
            found = await self._memory.query(*(Get(store=f"{node.kind}s", id=node.id) for node in batch))
            for node, answer in zip(batch, found, strict=True):
                for one in records(answer.items, Named):
                    owners[node.ref] = one.owners
        return owners

    async def _family(self, begin: Iterable[str], way: Way) -> set[str]:
        found, ahead = set[str](), set(begin)
        while ahead:
            found |= ahead
            await self.read(up=ahead if way == "up" else (), down=ahead if way == "down" else (), depth=1)
            kin = [edge for edge in self._edges.values() if edge.kind is EdgeKind.PARENT]
            ahead = _within(way, ahead, 1, kin) - found
        return found


def _within(way: Way, start: Iterable[str], steps: int, edges: Iterable[Edge]) -> set[str]:
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
