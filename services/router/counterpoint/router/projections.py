"""Projections over HTTP: Cypher over the line of all tasks, and rebuilding what follows from the record."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from counterpoint.proto.memory import Cypher, Rebuild
from counterpoint.proto.messages import ProjectName, Shape
from counterpoint.router.bodies import ignored, read_json, value_of
from counterpoint.router.desk import Asked, Asking
from counterpoint.router.openapi import takes

router = APIRouter(prefix="/v1", tags=["operate"])

Projected = Annotated[Literal["episodic", "graph"], Path(description="The tier.")]


class CypherQuery(Shape):
    """A Cypher query that only reads, and the values of its `$parameters`."""

    query: str = Field(min_length=1, max_length=16_000)
    parameters: dict[str, Any] = {}
    limit: int = Field(default=100, ge=1, le=10_000)
    timeout_ms: int = Field(default=1000, ge=1, le=2500)
    project: ProjectName | None = None


class CypherRows(Shape):
    """The first rows. `cut`: there are more than were asked for, or than fit into a reply."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    cut: bool
    took_us: int
    ignored: tuple[str, ...] = ()


class RebuildProgress(Shape):
    """How far the last rebuild of a project has come: `records` of the `of` there were when it began."""

    project: str
    tier: str
    state: Literal["none", "running", "done", "failed"] | str
    records: int = 0
    of: int = 0
    problem: str | None = None


@router.post("/cypher", responses={200: {"model": CypherRows}}, response_model=None, openapi_extra=takes(CypherQuery))
async def cypher(request: Request, asked: Asking) -> Response:
    """Ask the line of all tasks of a project: nodes Task and Action, edges LEADS_TO, COORDINATES_WITH and PART_OF.

    What does not only read, is no Cypher, or takes too long or too much is 422 `cypher`.
    """
    body = await read_json(request)
    asked = asked.within(body)
    asked.needs("operate")
    given = value_of(CypherQuery, body)
    (found,) = await asked.memory().query(
        Cypher(query=given.query, parameters=given.parameters, limit=given.limit, timeout_ms=given.timeout_ms)
    )
    return JSONResponse((found.report or {}) | {"took_us": found.took_us, "ignored": ignored(CypherQuery, body)})


@router.post("/rebuild/{tier}", status_code=202, responses={202: {"model": RebuildProgress}}, response_model=None)
async def rebuild(asked: Asking, tier: Projected) -> Response:
    """Build a projection of the project anew from the record, beside the one that answers meanwhile.

    While one is under way, another is 409 `conflict`.
    """
    return await _progress(asked, Rebuild(tier=tier, start=True), 202)


@router.get("/rebuild/{tier}", responses={200: {"model": RebuildProgress}}, response_model=None)
async def rebuilding(asked: Asking, tier: Projected) -> Response:
    """How far the last rebuild has come."""
    return await _progress(asked, Rebuild(tier=tier), 200)


async def _progress(asked: Asked, query: Rebuild, status: int) -> Response:
    asked.needs("operate")
    (found,) = await asked.memory().query(query)
    return JSONResponse({"project": asked.project, "tier": query.tier} | (found.report or {}), status)
