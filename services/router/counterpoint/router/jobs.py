"""Jobs over HTTP: what a job stands among, and what rests on it (rows F2, F3)."""

from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Path, Query, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.tasks import JobRef
from counterpoint.recall import Memory
from counterpoint.recall.lineage import blast_radius_of, lineage_of
from counterpoint.recall.names import Node, job
from counterpoint.recall.radius import Direction, Lineage, Radius
from counterpoint.router.bodies import reply
from counterpoint.router.desk import Asking

router = APIRouter(prefix="/v1/jobs", tags=["lineage"])

Namespace = Annotated[str, Path(description="The job's namespace, percent-encoded.")]
Name = Annotated[str, Path(description="The job's name, percent-encoded.")]
Depth = Annotated[int, Query(ge=1, le=100, description="At most so many hops from job to job.")]


class EncodedPaths:
    """Leaves the paths of jobs encoded until they are taken apart, so that names may hold slashes."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on."""
        raw = scope.get("raw_path") or b""
        if scope["type"] == "http" and raw.startswith(router.prefix.encode() + b"/"):
            scope = {**scope, "path": raw.decode("latin-1")}
        await self._app(scope, receive, send)


@router.get("/{namespace}/{name}/lineage", responses={200: {"model": Lineage}}, response_model=None)
async def lineage(
    asked: Asking, namespace: Namespace, name: Name, depth: Depth = 20, direction: Direction = Direction.BOTH
) -> Response:
    """The jobs and datasets around a job; upstream ones have negative hops."""
    asked.needs("read")
    memory = asked.memory()
    start = await _known(memory, namespace, name)
    return reply(await lineage_of(memory, start, depth=depth, direction=direction))


@router.get("/{namespace}/{name}/blast-radius", responses={200: {"model": Radius}}, response_model=None)
async def blast_radius(asked: Asking, namespace: Namespace, name: Name, depth: Depth = 20) -> Response:
    """What rests on a job: every job and dataset downstream, by data and by control, with its owner."""
    asked.needs("read")
    memory = asked.memory()
    return reply(await blast_radius_of(memory, await _known(memory, namespace, name), depth=depth))


def job_named(text: str) -> JobRef:
    """The job of `NAMESPACE/NAME`; a namespace may hold slashes, a name does not. Raises `Permanent` `invalid`."""
    namespace, slash, name = text.rpartition("/")
    if not slash or not namespace or not name:
        raise Permanent("invalid", (Problem(field="job", problem="must be NAMESPACE/NAME"),))
    return JobRef(namespace=namespace, name=name)


async def _known(memory: Memory, namespace: str, name: str) -> Node:
    start = job(*await memory.harmless((unquote(namespace), unquote(name))))
    if await memory.get("jobs", start.id) is None:
        raise Permanent("not_found", (Problem(field="name", problem="is no job that is known"),))
    return start
