"""Subscriptions to resources: a notification whenever what one is about changes.

What does not exist, or is of another project, is accepted like anything else and never leads to a notification, as the
protocol wants it. Clients before 2026-07-28 subscribe within their session, later ones by a request whose response is
the stream.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

import structlog
from fastmcp import FastMCP
from fastmcp.server.dependencies import bind_request_context
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ResourceUpdated
from mcp_types import (
    INVALID_PARAMS,
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
    UnsubscribeRequestParams,
)

from counterpoint.proto.errors import CounterpointError, Permanent, Transient
from counterpoint.proto.memory import List
from counterpoint.router.api.context import RequestContext
from counterpoint.router.api.task_state import current_task
from counterpoint.router.api.waiting_tasks import waiting_tasks
from counterpoint.router.mcp.caller import caller
from counterpoint.router.mcp.problems import protocol_error
from counterpoint.router.mcp.resources import STORES, WAITING, lineage_around

log = structlog.get_logger()

SUBSCRIPTIONS = 100
"""Maximum number of subscriptions of one stream, or of one session of an older client."""
_OF_TASKS = frozenset({"task", "card", "line"})
_LOOK_S = 10.0
"""Interval in which a resource is read that no live message is about: a record, a lineage, the list of what waits."""
_STATE = "counterpoint.subscriptions"
"""Key of a session's subscriptions in the state of its connection."""

Updated = Callable[[str], Awaitable[None]]
Request = ServerRequestContext[Any, Any]


async def listen(ctx: Request, params: SubscriptionsListenRequestParams) -> SubscriptionsListenResult:
    """Serve one stream of updates."""
    bus = InMemorySubscriptionBus()

    async def updated(uri: str) -> None:
        await bus.publish(ResourceUpdated(uri=uri))

    uris = params.notifications.resource_subscriptions or ()
    _check_count(len(uris))
    with bind_request_context(ctx):
        context = caller()
    watching = list[asyncio.Task[None]]()
    try:
        with context.resources.open_streams.count(context.principal.name):
            with bind_request_context(ctx):
                for uri in uris:
                    watching.append(await _watch(uri, updated))
            return await ListenHandler(bus)(ctx, params)
    except Permanent as error:
        raise protocol_error(error) from error
    finally:
        await _cancel(watching)


async def subscribe(ctx: Request, params: SubscribeRequestParams) -> EmptyResult:
    """Subscribe a session to a resource."""
    connection = ctx.session._connection  # the session of this request ends with it
    subscriptions: dict[str, asyncio.Task[None]] = connection.state.setdefault(_STATE, {})
    if params.uri not in subscriptions:
        _check_count(len(subscriptions) + 1)
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


def _check_count(count: int) -> None:
    if count > SUBSCRIPTIONS:
        raise MCPError(INVALID_PARAMS, f"invalid: at most {SUBSCRIPTIONS} subscriptions are possible, not {count}")


async def _watch(uri: str, updated: Updated) -> asyncio.Task[None]:
    """Return the task that reports changes from now on."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    context = before = None
    with suppress(CounterpointError):
        context = caller(parse_qs(parts.query).get("project", [None])[-1])
        context.require("read")
        before = await _state(context, parts)
    return asyncio.create_task(_report(context, parts, before, partial(updated, uri)))


async def _report(
    context: RequestContext | None, parts: SplitResult, before: object, updated: Callable[[], Awaitable[None]]
) -> None:
    """Report changes of a resource, until the caller may not read it any more or the router stops."""
    if context is None or before is None:
        return
    of_task = parts.scheme in _OF_TASKS
    # No message is about anything else: its listener ends with the router alone.
    with context.resources.hub.listen(context.project, parts.netloc if of_task else parts.geturl()) as listener:
        while not listener.closed:
            listener.clear()
            try:
                state = await _state(context, parts)
            except Transient as error:
                log.info("mcp.waits", reason=str(error))
            except CounterpointError:
                return
            else:
                if state != before:
                    before = state
                    await updated()
            await listener.wait(context.resources.settings.poll_s if of_task else _LOOK_S)


async def _state(context: RequestContext, parts: SplitResult) -> object:
    """Return what changes with a resource; None for one that is not there. Raises `CounterpointError`."""
    match parts.scheme:
        case "task" | "card" | "line":
            newest = await context.fetch(List(store="actions", task_id=parts.netloc, limit=1))
            return await current_task(context, parts.netloc), tuple(item.id for item in newest.items)
        case "memory" if parts.netloc in STORES:
            item = await context.memory().get(parts.netloc, unquote(parts.path.removeprefix("/")))
            return item.version if item else None
        case "lineage":
            return (await lineage_around(context, parts.netloc)).model_dump_json()
        case "escalations":
            tasks, _ = await waiting_tasks(context, WAITING)
            return tuple((task.task_id, task.version) for task in tasks)
    return None


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
