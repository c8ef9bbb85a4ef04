"""Subscriptions to the resources of a task: a notification whenever the task or its line changes.

The id of a task that does not exist, or of another project, is accepted like any other and never leads to a
notification, as the protocol wants it. Clients before 2026-07-28 subscribe within their session, later ones by a
request whose response is the stream.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import structlog
from fastmcp import FastMCP
from fastmcp.server.dependencies import bind_request_context
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp_types import (
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from counterpoint.proto.errors import CounterpointError, Transient
from counterpoint.proto.memory import List
from counterpoint.router.api.context import RequestContext
from counterpoint.router.api.task_state import current_task
from counterpoint.router.mcp.caller import caller

log = structlog.get_logger()

_SCHEMES = ("task", "card", "line")
_STATE = "counterpoint.subscriptions"
"""Key of a session's subscriptions in the state of its connection."""

Updated = Callable[[str], Awaitable[None]]
Request = ServerRequestContext[Any, Any]


async def listen(ctx: Request, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
    """Serve one stream of updates."""
    bus = InMemorySubscriptionBus()

    async def updated(uri: str) -> None:
        await bus.publish(ResourceUpdated(uri=uri))

    with bind_request_context(ctx):
        watching = [await _watch(uri, updated) for uri in params.notifications.resource_subscriptions or ()]
    try:
        return await ListenHandler(bus)(ctx, params)
    finally:
        await _cancel(watching)


async def subscribe(ctx: Request, params: SubscribeRequestParams) -> EmptyResult:
    """Subscribe a session to a resource."""
    connection = ctx.session._connection  # the session of this request ends with it
    subscriptions: dict[str, asyncio.Task[None]] = connection.state.setdefault(_STATE, {})
    if params.uri not in subscriptions:
        with bind_request_context(ctx):
            subscriptions[params.uri] = await _watch(params.uri, connection.send_resource_updated)
        connection.exit_stack.push_async_callback(_cancel, [subscriptions[params.uri]])
    return EmptyResult()


async def unsubscribe(ctx: Request, params: UnsubscribeRequestParams) -> EmptyResult:
    """End a subscription of a session."""
    subscriptions: dict[str, asyncio.Task[None]] = ctx.session._connection.state.get(_STATE, {})
    if (watching := subscriptions.pop(params.uri, None)) is not None:
        await _cancel([watching])
    return EmptyResult()


def add_subscriptions(server: FastMCP) -> None:
    """Serve subscriptions, which fastmcp leaves to the server below it."""
    handlers = server._mcp_server
    handlers.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, listen)
    handlers.add_request_handler("resources/subscribe", SubscribeRequestParams, subscribe)
    handlers.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, unsubscribe)


async def _watch(uri: str, updated: Updated) -> asyncio.Task[None]:
    """Return the task that reports changes from now on."""
    parts = urlsplit(uri)
    task_id, project = parts.netloc, parse_qs(parts.query).get("project", [None])[-1]
    context = before = None
    if parts.scheme in _SCHEMES:
        with suppress(CounterpointError):
            context = caller(project)
            context.require("read")
            before = await _state(context, task_id)
    return asyncio.create_task(_report(context, task_id, before, partial(updated, uri)))


async def _report(
    context: RequestContext | None, task_id: str, before: object, updated: Callable[[], Awaitable[None]]
) -> None:
    """Report changes of a task, until the caller may not read it any more or the router stops."""
    if context is None or before is None:
        return
    with context.resources.hub.listen(context.project, task_id) as listener:
        while not listener.closed:
            listener.clear()
            try:
                state = await _state(context, task_id)
            except Transient as error:
                log.info("mcp.waits", reason=str(error))
            except CounterpointError:
                return
            else:
                if state != before:
                    before = state
                    await updated()
            await listener.wait(context.resources.settings.poll_s)


async def _state(context: RequestContext, task_id: str) -> object:
    newest = await context.fetch(List(store="actions", task_id=task_id, limit=1))
    return await current_task(context, task_id), tuple(item.id for item in newest.items)


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
