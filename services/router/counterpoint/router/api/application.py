"""The HTTP API: the application and its server."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI, Response
from fastapi.responses import JSONResponse

from counterpoint.bus import Service
from counterpoint.bus.health import http_server, serve
from counterpoint.proto import schemas, subjects
from counterpoint.proto.errors import ErrorCode, Permanent, Problem
from counterpoint.proto.messages import Message
from counterpoint.router import streams
from counterpoint.router.api import (
    approvals,
    audit,
    bulk_import,
    costs,
    dead_letters,
    decisions,
    delegations,
    documents,
    drafts,
    entities,
    erasures,
    health,
    incident_settings,
    incidents,
    jobs,
    limits,
    lineage_search,
    links,
    model_tokens,
    openapi,
    organisation_limits,
    passages,
    principals,
    projections,
    quarantines,
    reembedding,
    releases,
    replay,
    replay_calls,
    revocations,
    search,
    sessions,
    shadow,
    task_card,
    task_line,
    tasks,
)
from counterpoint.router.api.context import RouterResources, TaskIssues
from counterpoint.router.authentication import Authenticator
from counterpoint.router.console import serving, sign_in
from counterpoint.router.hub import Hub
from counterpoint.router.intake.running_tasks import RunningTasks
from counterpoint.router.mcp.endpoint import McpEndpoint
from counterpoint.router.problems import answer_with_problems
from counterpoint.router.settings import RouterSettings
from counterpoint.router.webhooks import endpoint as webhooks
from counterpoint.router.webhooks.sources import WebhookSources


class HttpApi(FastAPI):
    """The FastAPI application. Without `resources` it only serves its OpenAPI document."""

    def __init__(self, resources: RouterResources | None = None) -> None:
        super().__init__(
            title="Counterpoint",
            version="1.0.0",
            description="Submit tasks, read them, report their outcomes. Errors are RFC 9457 problems.",
            docs_url=None,
            redoc_url=None,
        )
        self.state.resources = resources
        for part in (
            tasks,
            task_line,
            task_card,
            drafts,
            incidents,
            replay,
            replay_calls,
            model_tokens,
            links,
            sessions,
            incident_settings,
            shadow,
            approvals,
            delegations,
            costs,
            health,
            limits,
            organisation_limits,
            streams,
            decisions,
            documents,
            passages,
            search,
            entities,
            lineage_search,
            jobs,
            dead_letters,
            quarantines,
            erasures,
            releases,
            revocations,
            bulk_import,
            principals,
            audit,
            projections,
            reembedding,
            webhooks,
            sign_in,
            serving,
        ):
            self.include_router(part.router)
        self.get("/v1/schemas/{message_type}", tags=["contract"], response_model=None)(schema)
        self.add_middleware(jobs.EncodedPaths)
        answer_with_problems(self)

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, also at `/openapi.json`."""
        if self.openapi_schema is None:
            self.openapi_schema = openapi.document(self)
        return self.openapi_schema


async def schema(message_type: str) -> Response:
    """The JSON Schema of a message type, such as `counterpoint.task.submit.v1`. Needs no token."""
    if message_type not in Message.register:
        raise Permanent(ErrorCode.NOT_FOUND, (Problem(field="message_type", problem="is not a message type"),))
    return JSONResponse(schemas.of(message_type), media_type="application/schema+json")


def attach(
    service: Service,
    settings: RouterSettings,
    running_tasks: RunningTasks,
    issues: TaskIssues | None,
    *,
    has_receivers: bool,
) -> None:
    """Serve HTTP as a task of the service. Waits and streams end when the service stops.

    Raises `Permanent` for a source of webhooks that is not configured correctly.
    """
    sources = WebhookSources(settings.hooks_file)
    sources.check()
    hub = Hub()
    memory = service.memory
    resources = RouterResources(
        memory,
        Authenticator(memory, settings.principal_cache_s),
        hub,
        running_tasks,
        settings,
        has_receivers=has_receivers,
        issues=issues,
    )
    api = HttpApi(resources)
    api.state.webhook_sources = sources
    mcp = McpEndpoint(api, resources)
    server, _ = http_server(
        mcp,
        settings.http_host,
        settings.http_port,
        certificate=settings.tls_cert,
        key=settings.tls_key,
        listener_fd=settings.http_fd,
    )

    def on_message(subject: str, headers: Mapping[str, str]) -> None:
        hub.on_message(subject, headers)
        running_tasks.on_message(subject, headers)

    async def http() -> None:
        await service.connection.watch(subjects.live_kind("tasks", "*"), on_message)
        await serve(server)

    async def finish() -> None:
        server.should_exit = True
        hub.close()
        await mcp.close()
        await server.finish()

    watch = partial(service.connection.watch, subjects.live_kind("decisions", "*"), hub.on_message)

    async def watch_decisions() -> None:
        await hub.watch_while_listening(watch)

    service.on_stop(finish)
    service.add_task(watch_decisions)
    service.add_task(http, lambda: None if server.started else "http")
