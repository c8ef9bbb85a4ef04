"""Edges of the lineage graph: the records of the store `edges`."""

import hashlib
from enum import StrEnum

from counterpoint.graph.names import Node, node_of
from counterpoint.proto.messages import Shape


class EdgeKind(StrEnum):
    """`data`: written or read; `control`: runs before; `parent`: the target is part of the source."""

    DATA = "data"
    CONTROL = "control"
    PARENT = "parent"


class LineageEdge(Shape):
    """A directed edge between two nodes, given as `Node.ref`. It is immutable."""

    kind: EdgeKind
    source: str
    target: str

    @property
    def id(self) -> str:
        """Id of the record, derived from kind and ends."""
        ends = hashlib.sha256(f"{self.source}\x1f{self.target}".encode()).hexdigest()[:32]
        return f"{self.kind}-{ends}"

    @property
    def ends(self) -> tuple[Node, Node]:
        """Source and target."""
        return node_of(self.source), node_of(self.target)


def edge(kind: EdgeKind, source: Node, target: Node) -> LineageEdge:
    """Return the edge from `source` to `target`."""
    return LineageEdge(kind=kind, source=source.ref, target=target.ref)
