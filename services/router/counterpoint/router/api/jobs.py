"""Jobs and datasets over HTTP: search, lineage and blast radius."""

from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Path, Query, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from counterpoint.client import Memory
from counterpoint.graph.lineage import blast_radius_of, lineage_of
from counterpoint.graph.names import Node, NodeKind
from counterpoint.graph.radius import BlastRadius, Direction, Lineage
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.memory import AsOf, Get
from counterpoint.proto.tasks import JobRef
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context, RequestContext

router = APIRouter(prefix="/v1", tags=["lineage"])

Namespace = Annotated[str, Path(description="The namespace, percent-encoded.")]
Name = Annotated[str, Path(description="The name, percent-encoded.")]
Depth = Annotated[int, Query(ge=1, le=100, description="Maximum number of hops between jobs.")]
Moment = Annotated[
    AsOf | None, Query(description="A time, or the id of a commit: the graph as it was known at that moment.")
]
_ENCODED = (b"/v1/jobs/", b"/v1/datasets/")


class EncodedPaths:
    """Middleware that keeps paths of jobs and datasets percent-encoded for routing: names may contain slashes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request."""
        raw = scope.get("raw_path") or b""
        if scope["type"] == "http" and raw.startswith(_ENCODED):
            scope = {**scope, "path": raw.decode("latin-1")}
        await self._app(scope, receive, send)


@router.get("/jobs/{namespace}/{name}/lineage", responses={200: {"model": Lineage}}, response_model=None)
async def job_lineage(
    context: Context,
    namespace: Namespace,
    name: Name,
    depth: Depth = 20,
    direction: Direction = Direction.BOTH,
    as_of: Moment = None,
) -> Response:
    """Return the jobs and data sets around a job. Upstream hops are negative."""
    memory, start = await _start(context, NodeKind.JOB, namespace, name, as_of)
    return reply(await lineage_of(memory, start, depth=depth, direction=direction, as_of=as_of))


@router.get("/datasets/{namespace}/{name}/lineage", responses={200: {"model": Lineage}}, response_model=None)
async def dataset_lineage(
    context: Context,
    namespace: Namespace,
    name: Name,
    depth: Depth = 20,
    direction: Direction = Direction.BOTH,
    as_of: Moment = None,
) -> Response:
    """Return the jobs and data sets around a data set. Upstream hops are negative."""
    memory, start = await _start(context, NodeKind.DATASET, namespace, name, as_of)
    return reply(await lineage_of(memory, start, depth=depth, direction=direction, as_of=as_of))


@router.get("/jobs/{namespace}/{name}/blast-radius", responses={200: {"model": BlastRadius}}, response_model=None)
async def job_radius(
    context: Context, namespace: Namespace, name: Name, depth: Depth = 20, as_of: Moment = None
) -> Response:
    """Return all jobs and data sets downstream of a job, by data and by control, with their owners."""
    memory, start = await _start(context, NodeKind.JOB, namespace, name, as_of)
    return reply(await blast_radius_of(memory, start, depth=depth, as_of=as_of))


@router.get("/datasets/{namespace}/{name}/blast-radius", responses={200: {"model": BlastRadius}}, response_model=None)
async def dataset_radius(
    context: Context, namespace: Namespace, name: Name, depth: Depth = 20, as_of: Moment = None
) -> Response:
    """Return all jobs and data sets downstream of a data set, by data and by control, with their owners."""
    memory, start = await _start(context, NodeKind.DATASET, namespace, name, as_of)
    return reply(await blast_radius_of(memory, start, depth=depth, as_of=as_of))


async def _start(
    context: RequestContext, kind: NodeKind, namespace: str, name: str, as_of: str | None
) -> tuple[Memory, Node]:
    """Return memory for the caller, and the job or dataset of a path if it was known at the moment."""
    context.require("read")
    memory = context.memory()
    return memory, await known_node(memory, kind, unquote(namespace), unquote(name), as_of=as_of)


def parse_job(text: str) -> JobRef:
    """Return the job of `NAMESPACE/NAME`; only the namespace may contain slashes. Raises `Permanent` `invalid`."""
    namespace, slash, name = text.rpartition("/")
    if not slash or not namespace or not name:
        raise Permanent(ErrorCode.INVALID, (Problem(field="job", problem="must be NAMESPACE/NAME"),))
    return JobRef(namespace=namespace, name=name)


async def known_job(memory: Memory, namespace: str, name: str, field: str) -> Node:
    """Return a job that lineage knows. Raises `Permanent` `not_found` for `field`."""
    return await known_node(memory, NodeKind.JOB, namespace, name, field=field)


async def known_node(
    memory: Memory, kind: NodeKind, namespace: str, name: str, *, field: str = "name", as_of: str | None = None
) -> Node:
    """Return a job or dataset that lineage knows, or knew at a moment. Raises `Permanent` `not_found` for `field`."""
    namespace, name = await memory.redact_names((namespace, name))
    node = Node(kind=kind, namespace=namespace, name=name)
    (found,) = await memory.query(Get(store=f"{kind}s", id=node.id, as_of=as_of))
    if not found.items:
        named, then = "data set" if kind is NodeKind.DATASET else "job", " at that time" if as_of else ""
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field=field, problem=f"is not a known {named}{then}"),))
    return node
