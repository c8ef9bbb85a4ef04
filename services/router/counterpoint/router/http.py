"""The HTTP API: one application over the desk, on a port of its own."""

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from counterpoint.bus import Service
from counterpoint.bus.health import http_server, serve
from counterpoint.proto import schemas, subjects
from counterpoint.proto.errors import Permanent, Problem
from counterpoint.proto.messages import Message
from counterpoint.router import (
    audit,
    dead_letters,
    documents,
    entities,
    erasures,
    incident_settings,
    jobs,
    lines,
    links,
    openapi,
    past,
    principals,
    projections,
    quarantines,
    reembed,
    releases,
    revocations,
    search,
    shadow,
    streams,
    tasks,
)
from counterpoint.router.askers import Askers
from counterpoint.router.desk import Desk
from counterpoint.router.hub import Hub
from counterpoint.router.problems import answer_with_problems
from counterpoint.router.settings import RouterSettings
from counterpoint.router.under_way import UnderWay


class Front(FastAPI):
    """The application. Without a desk it can be described and not asked."""

    def __init__(self, desk: Desk | None = None) -> None:
        super().__init__(
            title="Counterpoint",
            version="1.0.0",
            description="Hand in tasks, look at them, say how they went. Errors are RFC 9457 problems.",
            docs_url=None,
            redoc_url=None,
        )
        self.state.desk = desk
        for part in (
            tasks,
            lines,
            links,
            incident_settings,
            shadow,
            streams,
            documents,
            search,
            entities,
            jobs,
            dead_letters,
            quarantines,
            erasures,
            releases,
            revocations,
            past,
            principals,
            audit,
            projections,
            reembed,
        ):
            self.include_router(part.router)
        self.get("/v1/schemas/{message_type}", tags=["contract"], response_model=None)(schema)
        self.add_middleware(jobs.EncodedPaths)
        answer_with_problems(self)

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document, also at `/openapi.json`."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.document(self)
        return self.openapi_schema


async def schema(message_type: str) -> Response:
    """The JSON Schema of a message type, such as `counterpoint.task.submit.v1`. Needs no token."""
    if message_type not in Message.register:
        raise Permanent("not_found", (Problem(field="message_type", problem="is no message type"),))
    return JSONResponse(schemas.of(message_type), media_type="application/schema+json")


def attach(service: Service, settings: RouterSettings, under_way: UnderWay) -> None:
    """Have the service answer HTTP, and end waits and streams when it stops."""
    hub = Hub()
    memory = service.memory
    desk = Desk(memory, Askers(memory, settings.principal_cache_s), hub, under_way, settings)
    server, _ = http_server(Front(desk), settings.http_host, settings.http_port)

    def heard(subject: str, headers: Mapping[str, str]) -> None:
        hub.heard(subject, headers)
        under_way.heard(subject, headers)

    async def http() -> None:
        await service.connection.watch(subjects.live(">"), heard)
        serving = asyncio.create_task(serve(server), name="http")
        try:
            await asyncio.shield(serving)
        finally:
            hub.close()
            server.should_exit = True
            await serving

    service.also(http, lambda: None if server.started else "http")
