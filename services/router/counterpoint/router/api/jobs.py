"""Jobs over HTTP: lineage and blast radius."""

from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Path, Query, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from counterpoint.client import Memory
from counterpoint.graph.lineage import blast_radius_of, lineage_of
from counterpoint.graph.names import Node, job
from counterpoint.graph.radius import BlastRadius, Direction, Lineage
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.tasks import JobRef
from counterpoint.router.api.body import reply
from counterpoint.router.api.context import Context

router = APIRouter(prefix="/v1/jobs", tags=["lineage"])

Namespace = Annotated[str, Path(description="The job's namespace, percent-encoded.")]
Name = Annotated[str, Path(description="The job's name, percent-encoded.")]
Depth = Annotated[int, Query(ge=1, le=100, description="Maximum number of hops between jobs.")]


class EncodedPaths:
    """Middleware that keeps job paths percent-encoded for routing, so that names may contain slashes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward the request."""
        raw = scope.get("raw_path") or b""
        if scope["type"] == "http" and raw.startswith(router.prefix.encode() + b"/"):
            scope = {**scope, "path": raw.decode("latin-1")}
        await self._app(scope, receive, send)


@router.get("/{namespace}/{name}/lineage", responses={200: {"model": Lineage}}, response_model=None)
async def lineage(
    context: Context, namespace: Namespace, name: Name, depth: Depth = 20, direction: Direction = Direction.BOTH
) -> Response:
    """Return the jobs and data sets around a job. Upstream hops are negative."""
    context.require("read")
    memory = context.memory()
    start = await known_job(memory, unquote(namespace), unquote(name))
    return reply(await lineage_of(memory, start, depth=depth, direction=direction))


@router.get("/{namespace}/{name}/blast-radius", responses={200: {"model": BlastRadius}}, response_model=None)
async def blast_radius(context: Context, namespace: Namespace, name: Name, depth: Depth = 20) -> Response:
    """Return all jobs and data sets downstream of a job, by data and by control, with their owners."""
    context.require("read")
    memory = context.memory()
    return reply(await blast_radius_of(memory, await known_job(memory, unquote(namespace), unquote(name)), depth=depth))


def parse_job(text: str) -> JobRef:
    """Return the job of `NAMESPACE/NAME`; only the namespace may contain slashes. Raises `Permanent` `invalid`."""
    namespace, slash, name = text.rpartition("/")
    if not slash or not namespace or not name:
        raise Permanent(ErrorCode.INVALID, (Problem(field="job", problem="must be NAMESPACE/NAME"),))
    return JobRef(namespace=namespace, name=name)


async def known_job(memory: Memory, namespace: str, name: str, field: str = "name") -> Node:
    """Return a job that lineage knows. Raises `Permanent` `not_found` for `field`."""
    start = job(*await memory.redact_names((namespace, name)))
    if await memory.get("jobs", start.id) is None:
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field=field, problem="is not a known job"),))
    return start
