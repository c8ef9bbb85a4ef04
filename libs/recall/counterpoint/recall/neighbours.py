"""Jobs upstream and downstream of a job: the relation of the blast radius, read in both directions."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from counterpoint.proto.memory import Walk
from counterpoint.recall.edges import Edge, EdgeKind
from counterpoint.recall.memory import Memory, record
from counterpoint.recall.names import Node, job
from counterpoint.recall.radius import FLOWS, blast_radius

EDGES_LIMIT = 1000
_DEPTH = 80
_STARTS = 100


@dataclass(frozen=True, slots=True)
class Upstream:
    """The edges that lead to some jobs."""

    edges: tuple[Edge, ...]

    def above(self, job: str, others: Mapping[str, Collection[str]]) -> frozenset[str]:
        """Return those of `others`, each with the jobs it is part of, that have the job in their blast radius."""
        up: dict[str, list[tuple[EdgeKind, str]]] = defaultdict(list)
        for edge in self.edges:
            up[edge.target].append((edge.kind, edge.source))
        reached, ahead, sources = {job}, [job], set[str]()
        while ahead:
            for kind, source in up.get(ahead.pop(), ()):
                if kind in FLOWS:
                    sources.add(source)
                if source not in reached:
                    # A whole that is reached brings its parts, so what leads to the whole leads to the job.
                    reached.add(source)
                    ahead.append(source)
        wholes = set[str]().union(*(self._family(source, up) for source in sources))
        out = self._family(job, up)
        return frozenset(
            other
            for other, within in others.items()
            if other not in out and job not in within and (other in wholes or any(whole in sources for whole in within))
        )

    @staticmethod
    def _family(job: str, up: dict[str, list[tuple[EdgeKind, str]]]) -> set[str]:
        """The job and all it is part of."""
        found, ahead = {job}, [job]
        while ahead:
            for kind, source in up.get(ahead.pop(), ()):
                if kind is EdgeKind.PARENT and source not in found:
                    found.add(source)
                    ahead.append(source)
        return found


async def upstream_jobs(memory: Memory, nodes: Sequence[Node], also: Sequence[Edge] = ()) -> Upstream:
    """The edges that lead to these jobs; `also` are some that memory does not hold yet.

    Raises `Transient` or `Denied`.
    """
    starts = _closure({node.ref for node in nodes}, [(edge.target, edge.source) for edge in also])
    return Upstream((*await _walk(memory, sorted(starts), "up"), *also))


async def downstream_jobs(
    memory: Memory, node: Node, within: Collection[str] = (), also: Sequence[Edge] = ()
) -> frozenset[str]:
    """The jobs downstream of one, which is part of the jobs `within`; `also` as above.

    Raises `Transient` or `Denied`.
    """
    starts = _closure({node.ref, *within}, [(edge.source, edge.target) for edge in also])
    edges = (*await _walk(memory, sorted(starts), "down"), *also)
    part_of = [Edge(kind=EdgeKind.PARENT, source=whole, target=node.ref) for whole in within]
    reached = blast_radius(node, [*edges, *part_of], {}, depth=_DEPTH, limit=EDGES_LIMIT)
    return frozenset(job(row.namespace, row.name).ref for row in reached.downstream if row.kind == "job")


async def reached(memory: Memory, refs: Sequence[str], way: Literal["up", "down"]) -> frozenset[str]:
    """These nodes and all that edges of any kind lead to from them. Raises `Transient` or `Denied`."""
    edges = await _walk(memory, sorted(set(refs)), way)
    return frozenset(refs) | {end for edge in edges for end in (edge.source, edge.target)}


def _closure(starts: set[str], steps: Sequence[tuple[str, str]]) -> set[str]:
    """The starts and what steps lead to from them."""
    found, ahead = set[str](), set(starts)
    while ahead:
        found |= ahead
        ahead = {to for at, to in steps if at in ahead} - found
    return found


async def _walk(memory: Memory, refs: Sequence[str], way: Literal["up", "down"]) -> tuple[Edge, ...]:
    edges: dict[str, Edge] = {}
    for at in range(0, len(refs), _STARTS):
        starts = tuple(refs[at : at + _STARTS])
        walk = Walk(store="edges", start=starts, direction=way, depth=_DEPTH, limit=EDGES_LIMIT)
        (answer,) = await memory.query(walk)
        edges |= {item.id: record(item, Edge) for item in answer.items}
    return tuple(edges.values())
