"""Directed walks over the lineage graph: the blast radius of a failure, and the lineage around a job.

A hop is one step from job to job. A dataset has the hops of the jobs that read it: what a job writes is one hop down.
Asking about a DAG means asking about its tasks; a job that is part of another fails it, so what rests on the whole
rests on the part, but other parts of the whole are not touched by that alone.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Set
from enum import StrEnum

from counterpoint.graph.edges import EdgeKind, LineageEdge
from counterpoint.graph.names import Node, NodeKind
from counterpoint.proto.findings import Downstream
from counterpoint.proto.messages import Shape

FLOW_KINDS: frozenset[EdgeKind] = frozenset({EdgeKind.DATA, EdgeKind.CONTROL})


class Direction(StrEnum):
    """Direction of a lineage query."""

    DOWN = "down"
    UP = "up"
    BOTH = "both"


class BlastRadius(Shape):
    """Nodes downstream of a job or dataset.

    `expanded` are the parts of `start` that the query includes. `downstream` holds a row for each node and
    kind of edge, nearest first: `data` when data alone leads there, `control` when it waits for something touched or
    only a way with such a step leads there. `truncated`: there is more than the limits let through.
    """

    start: Node
    owner: str | None
    expanded: tuple[Node, ...]
    downstream: tuple[Downstream, ...]
    truncated: bool


class LineageNode(Shape):
    """A node of a lineage graph, `hops` from where the walk began, negative when upstream."""

    node: Node
    hops: int
    owner: str | None = None


class Lineage(Shape):
    """The graph around a job or dataset: its nodes, nearest first, and the edges between them."""

    start: Node
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]
    truncated: bool


Owners = Mapping[str, tuple[str, ...]]
"""`Node.ref` to the owners of that job or dataset."""


def blast_radius(
    start: Node,
    edges: Iterable[LineageEdge],
    owners: Owners,
    *,
    depth: int = 20,
    limit: int = 500,
    partial: bool = False,
) -> BlastRadius:
    """Return the nodes downstream of `start`, at most `depth` hops and `limit` nodes.

    `edges` are at least those reachable from `start` and from the jobs it is part of; `partial` says that not all of
    them are there. The owner of a dataset without one is that of a job writing it; of a task, that of its DAG.
    """
    graph = _Graph(edges)
    begin = graph.parts(start)
    whole = begin | graph.wholes(start)
    by_data = graph.walk(whole, frozenset({EdgeKind.DATA}), graph.down, depth, limit)
    by_any = graph.walk(whole, FLOW_KINDS, graph.down, depth, limit)
    rows: list[Downstream] = []
    for node, hops in by_any.hops.items():
        if node in whole:
            continue
        waits = [by_any.hops[source] + 1 for source in graph.waits_for(node) if source in by_any.hops]
        ways = {EdgeKind.DATA: by_data.hops.get(node), EdgeKind.CONTROL: min(waits, default=None)}
        if ways[EdgeKind.DATA] is None and not waits:
            ways[EdgeKind.CONTROL] = hops
        rows += [
            Downstream(
                kind=node.kind.value,
                namespace=node.namespace,
                name=node.name,
                hops=least,
                edge=kind.value,
                owner=graph.owner(node, owners),
            )
            for kind, least in ways.items()
            if least is not None
        ]
    rows.sort(key=lambda row: (row.hops, row.kind != "job", row.namespace, row.name, row.edge != "data"))
    return BlastRadius(
        start=start,
        owner=graph.owner(start, owners),
        expanded=tuple(sorted(begin - {start}, key=lambda node: node.ref)),
        downstream=tuple(rows),
        truncated=partial or by_any.cut or by_data.cut,
    )


def lineage(
    start: Node,
    edges: Iterable[LineageEdge],
    owners: Owners,
    *,
    depth: int = 20,
    direction: Direction = Direction.BOTH,
    limit: int = 500,
    partial: bool = False,
) -> Lineage:
    """The graph around `start`, at most `depth` hops and `limit` nodes each way. `edges` and `partial` as above."""
    graph = _Graph(edges)
    begin = graph.parts(start)
    hops = dict.fromkeys(begin, 0)
    cut = partial
    for way, sign in ((Direction.UP, -1), (Direction.DOWN, 1)):
        if direction in (way, Direction.BOTH):
            walk = graph.walk(begin, FLOW_KINDS, graph.up if way is Direction.UP else graph.down, depth, limit)
            hops = {node: sign * steps for node, steps in walk.hops.items() if node not in hops} | hops
            cut = cut or walk.cut
    places = (LineageNode(node=node, hops=steps, owner=graph.owner(node, owners)) for node, steps in hops.items())
    return Lineage(
        start=start,
        nodes=tuple(sorted(places, key=lambda place: (abs(place.hops), place.hops, place.node.ref))),
        edges=tuple(edge for edge in graph.edges if all(end in hops for end in edge.ends)),
        truncated=cut,
    )


class _Walk:
    """Hops to each node that a walk reached; `cut` when a limit left nodes out."""

    def __init__(self) -> None:
        self.hops: dict[Node, int] = {}
        self.cut = False


class _Graph:
    def __init__(self, edges: Iterable[LineageEdge]) -> None:
        self.edges = sorted({edge.id: edge for edge in edges}.values(), key=lambda e: (e.source, e.target, e.kind))
        self.down: dict[Node, list[tuple[EdgeKind, Node]]] = defaultdict(list)
        self.up: dict[Node, list[tuple[EdgeKind, Node]]] = defaultdict(list)
        for edge in self.edges:
            source, target = edge.ends
            self.down[source].append((edge.kind, target))
            self.up[target].append((edge.kind, source))

    def parts(self, node: Node) -> Set[Node]:
        """The node and all that is part of it."""
        return _closure(node, lambda at: self._ends(self.down, at, EdgeKind.PARENT))

    def wholes(self, node: Node) -> Set[Node]:
        """The node and all it is part of."""
        return _closure(node, lambda at: self._ends(self.up, at, EdgeKind.PARENT))

    def waits_for(self, node: Node) -> list[Node]:
        """The jobs that run before this one, or before one it is part of."""
        return [before for at in self.wholes(node) for before in self._ends(self.up, at, EdgeKind.CONTROL)]

    def walk(
        self,
        begin: Set[Node],
        kinds: Set[EdgeKind],
        ways: Mapping[Node, list[tuple[EdgeKind, Node]]],
        depth: int,
        limit: int,
    ) -> _Walk:
        """Breadth first along edges of these kinds; a job that is reached brings its parts, at no further hop.

        `limit` counts what is reached besides `begin`.
        """
        found = _Walk()
        reached = 0
        queue = deque((node, _first_hops(node)) for node in sorted(begin, key=lambda node: node.ref))
        while queue:
            node, hops = queue.popleft()
            if node in found.hops:
                continue
            if node not in begin and (hops > depth or reached >= limit):
                found.cut = True
                continue
            found.hops[node] = hops
            if node not in begin:
                reached += 1
                queue.extendleft((part, hops) for part in reversed(self._ends(self.down, node, EdgeKind.PARENT)))
            for kind, to in ways.get(node, ()):
                if kind not in kinds or to in found.hops:
                    continue
                if node.kind is NodeKind.JOB:
                    queue.append((to, hops + 1))
                else:
                    queue.appendleft((to, hops))
        return found

    def owner(self, node: Node, owners: Owners) -> str | None:
        """The owners of a node, else those of what it is part of, else those of the jobs that write it."""
        own = owners.get(node.ref, ())
        writers = self._ends(self.up, node, EdgeKind.DATA) if node.kind is NodeKind.DATASET else [node]
        wholes = [
            whole
            for writer in sorted(writers, key=lambda at: at.ref)
            for whole in sorted(self.wholes(writer), key=lambda at: (at != writer, at.ref))
        ]
        for whole in wholes:
            own = own or owners.get(whole.ref, ())
        return ", ".join(own) or None

    @staticmethod
    def _ends(ways: Mapping[Node, list[tuple[EdgeKind, Node]]], node: Node, kind: EdgeKind) -> list[Node]:
        return [to for by, to in ways.get(node, ()) if by is kind]


def _first_hops(node: Node) -> int:
    """A dataset is asked about as if it had just been written: its readers are one hop away."""
    return 0 if node.kind is NodeKind.JOB else 1


def _closure(node: Node, following: Callable[[Node], list[Node]]) -> Set[Node]:
    found = {node}
    ahead = [node]
    while ahead:
        fresh = [to for to in following(ahead.pop()) if to not in found]
        found.update(fresh)
        ahead += fresh
    return found
