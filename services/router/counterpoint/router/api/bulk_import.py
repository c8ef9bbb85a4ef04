"""Bulk import over HTTP: past incidents, lessons and the provider index."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import Field

from counterpoint.client import records
from counterpoint.proto.errors import Transient
from counterpoint.proto.incidents import PastIncident
from counterpoint.proto.ingest import RecordResult
from counterpoint.proto.lessons import PastLesson
from counterpoint.proto.memory import List
from counterpoint.proto.messages import ProjectName, Shape
from counterpoint.proto.providers import Provider
from counterpoint.router.api.body import RequestBody, batches, item_json, json_body, reply
from counterpoint.router.api.context import Context
from counterpoint.router.api.openapi import request_body
from counterpoint.router.paging import Cursor, Limit, ListPage, page

router = APIRouter(prefix="/v1", tags=["memory"])


class PastIncidents(Shape):
    """Past incidents to import as attempts."""

    incidents: tuple[PastIncident, ...] = Field(min_length=1, max_length=1000)
    project: ProjectName | None = None


class IncidentImportResult(Shape):
    """The result of each incident, in order, and the unknown fields of the body."""

    incidents: tuple[RecordResult, ...]
    ignored: tuple[str, ...] = ()


class Lessons(Shape):
    """Lessons to import."""

    lessons: tuple[PastLesson, ...] = Field(min_length=1, max_length=1000)
    project: ProjectName | None = None


class LessonImportResult(Shape):
    """The result of each attempt of each lesson, in order, and the unknown fields of the body."""

    attempts: tuple[RecordResult, ...]
    ignored: tuple[str, ...] = ()


class Providers(Shape):
    """Rows of the provider index. The rows of a known package are replaced."""

    providers: tuple[Provider, ...] = Field(min_length=1, max_length=1000)
    project: ProjectName | None = None


class ProviderImportResult(Shape):
    """The result of each row, in order, and the unknown fields of the body."""

    providers: tuple[RecordResult, ...]
    ignored: tuple[str, ...] = ()


@router.post(
    "/attempts",
    responses={200: {"model": IncidentImportResult}},
    response_model=None,
    openapi_extra=request_body(PastIncidents),
)
async def remember(
    body: Annotated[RequestBody[PastIncidents], json_body(PastIncidents, "ingest", large=True)],
) -> Response:
    """Import past incidents. The reply comes when they are searchable.

    A refused incident does not affect the others."""
    context, value = body.context, body.value
    became: list[RecordResult] = []
    for portion in batches(value.incidents, context.resources.settings.ingest_request_bytes):
        became += (await context.memory().bulk_import(incidents=portion)).incidents
    return reply(IncidentImportResult(incidents=tuple(became), ignored=body.ignored))


@router.post(
    "/lessons",
    responses={200: {"model": LessonImportResult}},
    response_model=None,
    openapi_extra=request_body(Lessons),
)
async def learn(body: Annotated[RequestBody[Lessons], json_body(Lessons, "ingest", large=True)]) -> Response:
    """Import lessons, as attempts of the caller. What a page states about its author is kept beside its importer.

    Nothing is replaced: an attempt that is known with other content is refused.
    """
    context, value = body.context, body.value
    became: list[RecordResult] = []
    for portion in batches(value.lessons, context.resources.settings.ingest_request_bytes):
        results = (await context.memory().bulk_import(lessons=portion)).lessons
        if len(results) != sum(len(lesson.attempts) for lesson in portion):
            raise Transient("memory is of an earlier release, which cannot import lessons; upgrade it first")
        became += results
    return reply(LessonImportResult(attempts=tuple(became), ignored=body.ignored))


@router.post(
    "/providers",
    responses={200: {"model": ProviderImportResult}},
    response_model=None,
    openapi_extra=request_body(Providers),
)
async def index(body: Annotated[RequestBody[Providers], json_body(Providers, "ingest", large=True)]) -> Response:
    """Add rows to the provider index of the project; project `shared` is for all."""
    context, value = body.context, body.value
    became: list[RecordResult] = []
    for portion in batches(value.providers, context.resources.settings.ingest_request_bytes):
        became += (await context.memory().bulk_import(providers=portion)).providers
    return reply(ProviderImportResult(providers=tuple(became), ignored=body.ignored))


@router.get("/providers", responses={200: {"model": ListPage[Provider]}}, response_model=None)
async def providers(
    context: Context,
    cursor: Cursor,
    package: Annotated[str | None, Query(max_length=200, description="A package.")] = None,
    limit: Limit = 50,
) -> Response:
    """List the provider index of the project and the shared one, newest first."""
    context.require("read")
    where = {"package": package} if package else {}
    result = await context.fetch(List(store="providers", where=where, limit=limit, cursor=cursor))
    return page(map(item_json, records(result.items, Provider)), result.next_cursor)
