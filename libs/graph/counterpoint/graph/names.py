"""Names of jobs and datasets, as ids of records and as ends of edges."""

from enum import StrEnum

from counterpoint.proto.messages import Shape

NAME_LIMIT_CHARS = 500

OWN_NAMESPACE = "counterpoint"
"""Namespace of the lineage of Counterpoint's own tasks."""


class NodeKind(StrEnum):
    """Kind of a node of the lineage graph."""

    JOB = "job"
    DATASET = "dataset"


class Node(Shape):
    """A job or dataset as OpenLineage names it: a namespace, and a name within it."""

    kind: NodeKind
    namespace: str
    name: str

    @property
    def id(self) -> str:
        """Id of the node's record in `jobs` or `datasets`: `<namespace>/<name>`, slashes of the namespace escaped."""
        return f"{_escape(self.namespace)}/{self.name}"

    @property
    def ref(self) -> str:
        """The node as an end of an edge: `job:<id>` or `dataset:<id>`."""
        return f"{self.kind}:{self.id}"

    def __str__(self) -> str:
        """The node for people: `namespace/name` as sent."""
        return f"{self.namespace}/{self.name}"


def job(namespace: str, name: str) -> Node:
    """Return the job of this name."""
    return Node(kind=NodeKind.JOB, namespace=namespace, name=name)


def dataset(namespace: str, name: str) -> Node:
    """Return the dataset of this name."""
    return Node(kind=NodeKind.DATASET, namespace=namespace, name=name)


def own_task(task_id: str) -> Node:
    """Return the job that represents a task of Counterpoint."""
    return job(OWN_NAMESPACE, task_id)


def own_item(store: str, record_id: str) -> Node:
    """Return the dataset that represents a record of memory."""
    return dataset(OWN_NAMESPACE, f"{store}/{record_id}")


def node_of(ref: str) -> Node:
    """Parse a `Node.ref`. Raises `ValueError` when it is not one."""
    kind, _, record_id = ref.partition(":")
    namespace, slash, name = record_id.partition("/")
    if not slash:
        raise ValueError(f"not a reference to a job or dataset: {ref!r}")
    return Node(kind=NodeKind(kind), namespace=_unescape(namespace), name=name)


def _escape(namespace: str) -> str:
    return namespace.replace("%", "%25").replace("/", "%2F")


def _unescape(namespace: str) -> str:
    return namespace.replace("%2F", "/").replace("%25", "%")
