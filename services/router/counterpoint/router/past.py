"""What was known before Counterpoint was there, over HTTP: past incidents, and rows of the provider index."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from counterpoint.proto.incidents import PastIncident
from counterpoint.proto.ingest import Recorded
from counterpoint.proto.memory import List
from counterpoint.proto.messages import ProjectName, Shape
from counterpoint.proto.providers import Provider
from counterpoint.recall import records
from counterpoint.router.bodies import Page, ignored, page, portions, read_json, reply, shown, value_of
from counterpoint.router.desk import Asking
from counterpoint.router.openapi import takes
from counterpoint.router.tasks import Cursor, Limit

router = APIRouter(prefix="/v1", tags=["memory"])


class PastIncidents(Shape):
    """Past incidents to remember as attempts."""

    incidents: tuple[PastIncident, ...] = Field(min_length=1, max_length=1000)
    project: ProjectName | None = None


class RecordedIncidents(Shape):
    """What became of each incident, in their order, and what of the body nobody reads."""

    incidents: tuple[Recorded, ...]
    ignored: tuple[str, ...] = ()


class Providers(Shape):
    """Rows of the provider index; a package that is there already is replaced."""

    providers: tuple[Provider, ...] = Field(min_length=1, max_length=1000)
    project: ProjectName | None = None


class RecordedProviders(Shape):
    """What became of each row, in their order, and what of the body nobody reads."""

    providers: tuple[Recorded, ...]
    ignored: tuple[str, ...] = ()


@router.post(
    "/attempts",
    responses={200: {"model": RecordedIncidents}},
    response_model=None,
    openapi_extra=takes(PastIncidents),
)
async def remember(request: Request, asked: Asking) -> Response:
    """Remember what was tried before. Answers when all of it can be found; what is refused keeps no other out."""
    body = await read_json(request, asked.desk.settings.documents_limit_bytes)
    asked = asked.within(body)
    asked.needs("ingest")
    given = value_of(PastIncidents, body)
    became: list[Recorded] = []
    for portion in portions(given.incidents, asked.desk.settings.ingest_request_bytes):
        became += (await asked.memory().hand_in(incidents=portion)).incidents
    return reply(RecordedIncidents(incidents=tuple(became), ignored=ignored(PastIncidents, body)))


@router.post(
    "/providers", responses={200: {"model": RecordedProviders}}, response_model=None, openapi_extra=takes(Providers)
)
async def index(request: Request, asked: Asking) -> Response:
    """Add rows to the provider index of the project, or of `shared` for all."""
    body = await read_json(request, asked.desk.settings.documents_limit_bytes)
    asked = asked.within(body)
    asked.needs("ingest")
    given = value_of(Providers, body)
    became: list[Recorded] = []
    for portion in portions(given.providers, asked.desk.settings.ingest_request_bytes):
        became += (await asked.memory().hand_in(providers=portion)).providers
    return reply(RecordedProviders(providers=tuple(became), ignored=ignored(Providers, body)))


@router.get("/providers", responses={200: {"model": Page[Provider]}}, response_model=None)
async def providers(
    asked: Asking,
    package: Annotated[str | None, Query(max_length=200, description="A package.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """The provider index as the project sees it, the newest rows first."""
    asked.needs("read")
    where = {"package": package} if package else {}
    found = await asked.look(List(store="providers", where=where, limit=limit, cursor=int(cursor) if cursor else None))
    return page(map(shown, records(found.items, Provider)), found.next_cursor)
