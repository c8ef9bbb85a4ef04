"""Directed walks over the lineage graph: the blast radius of a failure, and the lineage around a job.

A hop is one step from job to job. A dataset has the hops of the jobs that read it: the outputs of a job are one hop
down. The query for a DAG includes its tasks. A failed part fails its parent, so everything downstream of the parent is
downstream of the part; the other parts of the parent are not.
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
    kind of edge, nearest first: `data` when a path of data edges leads there, `control` when it runs after an affected
    job, or when every path has a control edge. `truncated`: nodes are missing because of the limits.
    """

    start: Node
    owner: str | None
    expanded: tuple[Node, ...]
    downstream: tuple[Downstream, ...]
    truncated: bool


class LineageNode(Shape):
    """A node of a lineage graph, `hops` from the start, negative when upstream."""

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

    `edges` are at least those reachable from `start` and from the jobs it is part of; `partial`: some are
    missing. The owner of a dataset without one is that of a job writing it; of a task, that of its DAG, else of a
    dataset that it writes.
    """
    graph = _Graph(edges)
    roots = graph.with_parts(start)
    family = roots | graph.with_parents(start)
    by_data = graph.walk(family, frozenset({EdgeKind.DATA}), graph.down, depth, limit)
    by_any = graph.walk(family, FLOW_KINDS, graph.down, depth, limit)
    rows: list[Downstream] = []
    for node, hops in by_any.hops.items():
        if node in family:
            continue
        waits = [by_any.hops[source] + 1 for source in graph.waits_for(node) if source in by_any.hops]
        hops_by_kind = {EdgeKind.DATA: by_data.hops.get(node), EdgeKind.CONTROL: min(waits, default=None)}
        if hops_by_kind[EdgeKind.DATA] is None and not waits:
            hops_by_kind[EdgeKind.CONTROL] = hops
        rows += [
            Downstream(
                kind=node.kind.value,
                namespace=node.namespace,
                name=node.name,
                hops=least,
                edge=kind.value,
                owner=graph.owner(node, owners),
            )
            for kind, least in hops_by_kind.items()
            if least is not None
        ]
    rows.sort(key=lambda row: (row.hops, row.kind != "job", row.namespace, row.name, row.edge != "data"))
    return BlastRadius(
        start=start,
        owner=graph.owner(start, owners),
        expanded=tuple(sorted(roots - {start}, key=lambda node: node.ref)),
        downstream=tuple(rows),
        truncated=partial or by_any.cut or by_data.cut,
    )


def owners_by_lineage(
    nodes: Iterable[Node], edges: Iterable[LineageEdge], owners: Owners
) -> dict[str, tuple[str, ...]]:
    """Return the owners of nodes by `Node.ref`, as in `blast_radius`."""
    graph = _Graph(edges)
    return {node.ref: graph.owners(node, owners) for node in nodes}


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
    """Return the graph around `start`, at most `depth` hops and `limit` nodes in each direction.

    `edges` and `partial` as in `blast_radius`.
    """
    graph = _Graph(edges)
    roots = graph.with_parts(start)
    hops = dict.fromkeys(roots, 0)
    cut = partial
    for way, sign in ((Direction.UP, -1), (Direction.DOWN, 1)):
        if direction in (way, Direction.BOTH):
            walk = graph.walk(roots, FLOW_KINDS, graph.up if way is Direction.UP else graph.down, depth, limit)
            hops = {node: sign * steps for node, steps in walk.hops.items() if node not in hops} | hops
            cut = cut or walk.cut
    nodes = (LineageNode(node=node, hops=steps, owner=graph.owner(node, owners)) for node, steps in hops.items())
    return Lineage(
        start=start,
        nodes=tuple(sorted(nodes, key=lambda row: (abs(row.hops), row.hops, row.node.ref))),
        edges=tuple(edge for edge in graph.edges if all(end in hops for end in edge.ends)),
        truncated=cut,
    )


class _Walk:
    """Hops to each node that a walk reached. `cut`: a limit left nodes out."""

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

    def with_parts(self, node: Node) -> Set[Node]:
        """Return the node and its parts, transitively."""
        return _closure(node, lambda at: self._ends(self.down, at, EdgeKind.PARENT))

    def with_parents(self, node: Node) -> Set[Node]:
        """Return the node and its parents, transitively."""
        return _closure(node, lambda at: self._ends(self.up, at, EdgeKind.PARENT))

    def waits_for(self, node: Node) -> list[Node]:
        """Return the jobs that run before this one or before one of its parents."""
        return [job for each in self.with_parents(node) for job in self._ends(self.up, each, EdgeKind.CONTROL)]

    def walk(
        self,
        roots: Set[Node],
        kinds: Set[EdgeKind],
        adjacency: Mapping[Node, list[tuple[EdgeKind, Node]]],
        depth: int,
        limit: int,
    ) -> _Walk:
        """Walk breadth first along edges of these kinds; the parts of a reached job have the same number of hops.

        `limit` counts the nodes reached besides `roots`.
        """
        walk = _Walk()
        reached = 0
        queue = deque((node, _first_hops(node)) for node in sorted(roots, key=lambda node: node.ref))
        while queue:
            node, hops = queue.popleft()
            if node in walk.hops:
                continue
            if node not in roots and (hops > depth or reached >= limit):
                walk.cut = True
                continue
            walk.hops[node] = hops
            if node not in roots:
                reached += 1
                queue.extendleft((part, hops) for part in reversed(self._ends(self.down, node, EdgeKind.PARENT)))
            for kind, to in adjacency.get(node, ()):
                if kind not in kinds or to in walk.hops:
                    continue
                if node.kind is NodeKind.JOB:
                    queue.append((to, hops + 1))
                else:
                    queue.appendleft((to, hops))
        return walk

    def owner(self, node: Node, owners: Owners) -> str | None:
        """Return the owners of a node as one text."""
        return ", ".join(self.owners(node, owners)) or None

    def owners(self, node: Node, owners: Owners) -> tuple[str, ...]:
        """Return the owners of a node, else of its parents, else of the jobs that write it.

        dbt states the owner of a model with the data set that it writes: the last that counts for a job.
        """
        own = owners.get(node.ref, ())
        writers = self._ends(self.up, node, EdgeKind.DATA) if node.kind is NodeKind.DATASET else [node]
        family = [
            parent
            for writer in sorted(writers, key=lambda at: at.ref)
            for parent in sorted(self.with_parents(writer), key=lambda at: (at != writer, at.ref))
        ]
        written = self._ends(self.down, node, EdgeKind.DATA) if node.kind is NodeKind.JOB else []
        for other in (*family, *sorted(written, key=lambda at: at.ref)):
            own = own or owners.get(other.ref, ())
        return own

    @staticmethod
    def _ends(adjacency: Mapping[Node, list[tuple[EdgeKind, Node]]], node: Node, kind: EdgeKind) -> list[Node]:
        return [to for by, to in adjacency.get(node, ()) if by is kind]


def _first_hops(node: Node) -> int:
    """Return 1 for a dataset, whose readers are one hop away as if it had just been written, else 0."""
    return 0 if node.kind is NodeKind.JOB else 1


def _closure(node: Node, following: Callable[[Node], list[Node]]) -> Set[Node]:
    closure = {node}
    ahead = [node]
    while ahead:
        fresh = [to for to in following(ahead.pop()) if to not in closure]
        closure.update(fresh)
        ahead += fresh
    return closure
