"""Projections over HTTP: Cypher queries and rebuilds."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from counterpoint.proto.commands import RebuildProjection
from counterpoint.proto.memory import Cypher, Rebuild
from counterpoint.proto.messages import ProjectName, Shape
from counterpoint.router.api.body import RequestBody, json_body
from counterpoint.router.api.context import Context, RequestContext
from counterpoint.router.api.openapi import request_body

router = APIRouter(prefix="/v1", tags=["operate"])

Projected = Annotated[Literal["episodic", "graph"], Path(description="The tier.")]


class CypherQuery(Shape):
    """A read-only Cypher query and the values of its `$parameters`."""

    query: str = Field(min_length=1, max_length=16_000)
    parameters: dict[str, Any] = {}
    limit: int = Field(default=100, ge=1, le=10_000)
    timeout_ms: int = Field(default=1000, ge=1, le=2500)
    project: ProjectName | None = None


class CypherRows(Shape):
    """The first rows. `cut`: there are more than `limit`, or than fit into a reply."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    cut: bool
    took_us: int
    ignored: tuple[str, ...] = ()


class RebuildProgress(Shape):
    """Progress of the last rebuild: `records` of `of`, the number of records at its start."""

    project: str
    tier: str
    state: Literal["none", "running", "done", "failed"] | str
    records: int = 0
    of: int = 0
    problem: str | None = None


@router.post(
    "/cypher", responses={200: {"model": CypherRows}}, response_model=None, openapi_extra=request_body(CypherQuery)
)
async def cypher(body: Annotated[RequestBody[CypherQuery], json_body(CypherQuery, "operate")]) -> Response:
    """Query the actions of all tasks of a project: nodes Task and Action, edges LEADS_TO, COORDINATES_WITH and PART_OF.

    A query that writes, is invalid, or exceeds its limits is 422 `cypher`.
    """
    context, value = body.context, body.value
    (result,) = await context.memory().query(
        Cypher(query=value.query, parameters=value.parameters, limit=value.limit, timeout_ms=value.timeout_ms)
    )
    return JSONResponse((result.report or {}) | {"took_us": result.took_us, "ignored": body.ignored})


@router.post("/rebuild/{tier}", status_code=202, responses={202: {"model": RebuildProgress}}, response_model=None)
async def rebuild(context: Context, tier: Projected) -> Response:
    """Rebuild a projection of the project from the record. The present one serves queries meanwhile.

    A second rebuild at the same time is 409 `conflict`.
    """
    context.require("operate")
    reply = await context.memory().command(RebuildProjection(tier=tier))
    return _progress(context, tier, reply.report, 202)


@router.get("/rebuild/{tier}", responses={200: {"model": RebuildProgress}}, response_model=None)
async def rebuilding(context: Context, tier: Projected) -> Response:
    """Return the progress of the last rebuild."""
    context.require("operate")
    (result,) = await context.memory().query(Rebuild(tier=tier))
    return _progress(context, tier, result.report, 200)


def _progress(context: RequestContext, tier: Projected, report: dict[str, Any] | None, status: int) -> Response:
    return JSONResponse({"project": context.project, "tier": tier} | (report or {}), status)
