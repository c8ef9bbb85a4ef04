"""`POST /hooks/{source}`: requests of other systems, by their signature or the token of a principal."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from counterpoint.proto.errors import Denied, Permanent
from counterpoint.proto.messages import MESSAGE_LIMIT_BYTES, ProjectName, Shape, utc_now
from counterpoint.router.api.body import parsed, raw_body, reply
from counterpoint.router.api.context import RequestContext, RouterResources
from counterpoint.router.webhooks.arrivals import EventEffect, arrive, joinable, note
from counterpoint.router.webhooks.callers import context_of, principal_of_source
from counterpoint.router.webhooks.chat import answer_chat
from counterpoint.router.webhooks.issue_events import FORGES, issue_event
from counterpoint.router.webhooks.mapping import reports_of, submission_of
from counterpoint.router.webhooks.reports import Event, IgnoredEvent, IssueNote, Report
from counterpoint.router.webhooks.signatures import delivery_id, verify
from counterpoint.router.webhooks.sources import WebhookSource, WebhookSources, unknown_source

router = APIRouter(prefix="/hooks", tags=["webhooks"])

_BEARER = HTTPBearer(auto_error=False, description="The token of a principal, for a source without a secret.")
SourcePath = Annotated[str, Path(description="A source or a kind.")]


class HookReply(Shape):
    """The effects of a request. `delivery` is the sender's id of it."""

    arrived: tuple[EventEffect, ...] = ()
    ignored: tuple[str, ...] = ()
    delivery: str | None = None


class HookTrial(Shape):
    """The tasks that a request would submit, the open ones that it would join, and what it would note."""

    tasks: tuple[dict[str, Any], ...] = ()
    joins: tuple[str, ...] = ()
    resolved: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@router.post("/{source}", status_code=202, responses={202: {"model": HookReply}}, response_model=None)
async def receive_hook(
    request: Request,
    source: SourcePath,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_BEARER)],
    project: Annotated[ProjectName | None, Query(description="The project, unless the source has one.")] = None,
    trial: Annotated[bool, Query(description="Answer what it would do, and do nothing. Needs a token.")] = False,
) -> Response:
    """Take what another system pushes: each event becomes a task, joins an open one, or is ignored by name.

    A repeated delivery has no second effect. A body may have 256 KiB.
    """
    resources: RouterResources = request.app.state.resources
    content = await raw_body(request, MESSAGE_LIMIT_BYTES)
    headers = {name.lower(): value for name, value in request.headers.items()}
    token = credentials.credentials if credentials else None
    try:
        known = sources_of(request).find(source)
    except Permanent:
        # The problem of a source is for those who may push.
        await resources.authenticator.authenticate(token)
        raise
    if known is not None and known.is_chat:
        return await answer_chat(resources, known, headers, content)
    if known is None or known.secret is None or trial:
        principal = await resources.authenticator.authenticate(token)
    else:
        verify(known.kind, known.secret.get_secret_value(), headers, content, utc_now())
        principal = await principal_of_source(resources, known, known.principal or "")
    context = context_of(resources, principal, known, project)
    context.require("submit", "report")
    if known is None:
        raise unknown_source()
    body = parsed(content)
    found = reports_of(known, headers, body)
    if trial:
        return reply(await _try(context, known, found))
    sender_id = delivery_id(known.kind, headers)
    synced = await _synced(context, known, body)
    if synced is not None:
        return reply(HookReply(arrived=(synced,), delivery=sender_id and sender_id[:200]), 202)
    arrived, ignored = await _arrive_all(context, known, found)
    return reply(HookReply(arrived=arrived, ignored=ignored, delivery=sender_id and sender_id[:200]), 202)


async def _synced(context: RequestContext, source: WebhookSource, body: Any) -> EventEffect | None:
    """Plan the comparison of a synchronized issue that an event of a forge is about; None for any other event."""
    issues = context.resources.issues
    event = issue_event(source.kind, body) if source.kind in FORGES and issues is not None else None
    if issues is None or event is None:
        return None
    task_id = await context.commit(partial(issues.touch, event=event))
    return EventEffect(task_id=task_id, effect="synced", project=context.project) if task_id else None


async def _arrive_all(
    context: RequestContext, source: WebhookSource, found: list[Event]
) -> tuple[tuple[EventEffect, ...], tuple[str, ...]]:
    """Commit the reports of a request. One of several that is refused is ignored by name; a single one is an error."""
    arrived, ignored = list[EventEffect](), list[str]()
    for each in found:
        if isinstance(each, IgnoredEvent):
            ignored.append(each.reason)
            continue
        try:
            if isinstance(each, IssueNote):
                noted = await note(context, source, each)
                arrived += noted
                ignored += [] if noted else ["it is about no open task"]
            else:
                arrived.append(await arrive(context, source, each))
        except (Permanent, Denied) as error:
            if len(found) == 1:
                raise
            ignored.append(f"an event is refused: {error}"[:500])
    return tuple(arrived), tuple(ignored)


def sources_of(request: Request) -> WebhookSources:
    """Return the sources of the application, made at the first request if it was not given any."""
    state = request.app.state
    if not hasattr(state, "webhook_sources"):
        state.webhook_sources = WebhookSources(state.resources.settings.hooks_file)
    sources: WebhookSources = state.webhook_sources
    return sources


async def _try(context: RequestContext, source: WebhookSource, found: list[Event]) -> HookTrial:
    tasks, joins = list[dict[str, Any]](), list[str]()
    for each in found:
        if isinstance(each, Report) and not each.resolved:
            task = submission_of(source, each)
            tasks.append(task.model_dump(mode="json", exclude_none=True, exclude_defaults=True))
            open_task = await joinable(context, task)
            joins += [open_task.task_id] if open_task else []
    return HookTrial(
        tasks=tuple(tasks),
        joins=tuple(joins),
        resolved=tuple(each.key for each in found if isinstance(each, Report) and each.resolved),
        ignored=tuple(each.reason for each in found if isinstance(each, IgnoredEvent)),
        notes=tuple(each.text for each in found if isinstance(each, IssueNote)),
    )
