"""Replies of people in Slack and Microsoft Teams, signed by the chat, each with the rights of its user's principal.

A command is answered in the chat, errors too: both show a reply only with status 200.
"""

import html
import json
import re
from dataclasses import replace
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

from fastapi import Response
from fastapi.responses import JSONResponse

from counterpoint.guard.policy import policy
from counterpoint.proto.errors import CounterpointError, Denied, ErrorCode, Permanent, Problem
from counterpoint.proto.messages import ProjectName, Shape, utc_now
from counterpoint.router.api.context import RequestContext, RouterResources
from counterpoint.router.notify.bodies.teams import literal
from counterpoint.router.problems import problem_of
from counterpoint.router.webhooks.callers import context_of, principal_of_source, user_named
from counterpoint.router.webhooks.chat_commands import ChatReply, command_in, refusal, run_command
from counterpoint.router.webhooks.reports import path
from counterpoint.router.webhooks.signatures import TOLERANCE_S, signed_id, verify
from counterpoint.router.webhooks.slack_replies import act_on, reply_in
from counterpoint.router.webhooks.sources import WebhookSource

_MENTION = re.compile(r"<at[^<>]*>[^<]*</at>")
_TAG = re.compile(r"<[^<>]+>")


class _ChatMessage(Shape):
    """A command as a user wrote it."""

    user: str
    text: str


async def answer_chat(
    resources: RouterResources, source: WebhookSource, headers: dict[str, str], content: bytes
) -> Response:
    """Answer a command or a click. Raises `Denied` for a wrong signature, and as `act_on` for a click."""
    assert source.secret is not None
    verify(source.kind, source.secret.get_secret_value(), headers, content, utc_now())
    request_id = signed_id(source.name, headers, content)
    if source.kind == "teams":
        return JSONResponse(
            teams_reply(await _answer(resources, source, message_of_teams(content, utc_now()), request_id))
        )
    form = _form(content)
    if "ssl_check" in form:
        return Response(status_code=200)
    if "command" in form:
        message = _ChatMessage(user=form.get("user_id", ""), text=html.unescape(form.get("text", "")))
        return JSONResponse(slack_reply(await _answer(resources, source, message, request_id)))
    click = reply_in(content)
    await act_on(await _caller(resources, source, click.user, click.project), click, request_id)
    return Response(status_code=200)


async def _answer(
    resources: RouterResources, source: WebhookSource, message: _ChatMessage, request_id: str
) -> ChatReply:
    try:
        clearance = policy().level(source.clearance)
        command = replace(command_in(message.text), clearance=clearance, request_id=request_id)
        context = await _caller(resources, source, message.user, command.project)
        return await run_command(context, command)
    except CounterpointError as error:
        problem, _ = problem_of(error)
        return refusal(problem.errors, problem.detail or problem.title)


async def _caller(
    resources: RouterResources, source: WebhookSource, user: str, project: ProjectName | None
) -> RequestContext:
    principal = await principal_of_source(resources, source, user_named(source, user))
    return context_of(resources, principal, source, project)


def _form(content: bytes) -> dict[str, str]:
    try:
        return {name: values[0] for name, values in parse_qs(content.decode(), keep_blank_values=True).items()}
    except ValueError as error:
        raise Permanent(ErrorCode.MALFORMED, (Problem(field="body", problem="is not a form"),)) from error


def message_of_teams(content: bytes, now: datetime) -> _ChatMessage:
    """Return the command in an activity of Teams, without the mention of the webhook.

    Raises `Permanent` `malformed`, and `Denied` for an old one.
    """
    try:
        activity: Any = json.loads(content)
        sent_at = datetime.fromisoformat(path(activity, "timestamp"))
        user = path(activity, "from", "aadObjectId") or path(activity, "from", "id")
        text = html.unescape(_TAG.sub(" ", _MENTION.sub(" ", path(activity, "text"))))
        message = _ChatMessage(user=user, text=" ".join(text.split()))
        age_s = abs((now - sent_at).total_seconds())
    except (ValueError, TypeError, RecursionError) as error:
        problem = Problem(field="body", problem="is not a message of Teams")
        raise Permanent(ErrorCode.MALFORMED, (problem,)) from error
    if age_s > TOLERANCE_S:
        raise Denied(ErrorCode.UNAUTHENTICATED, "a recent message of Teams")
    return message


def slack_reply(reply: ChatReply) -> dict[str, Any]:
    """Return a reply that the user alone sees. Its texts are no markup."""
    blocks: list[dict[str, Any]] = [_plain(part) for part in _parts(reply.text, 2900)]
    for text in reply.verbatim:
        element = {"type": "rich_text_preformatted", "elements": [{"type": "text", "text": text}]}
        blocks.append({"type": "rich_text", "elements": [element]})
    return {"response_type": "ephemeral", "blocks": blocks}


def teams_reply(reply: ChatReply) -> dict[str, Any]:
    """Return a reply as an adaptive card. Markdown in texts is escaped."""
    lines = [line for line in reply.text.splitlines() if line.strip()]
    body: list[dict[str, Any]] = [{"type": "TextBlock", "text": literal(line), "wrap": True} for line in lines]
    body += [{"type": "CodeBlock", "codeSnippet": text, "language": "PlainText"} for text in reply.verbatim]
    content = {"type": "AdaptiveCard", "version": "1.5", "body": body}
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": content}
    return {"type": "message", "attachments": [attachment]}


def _plain(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "plain_text", "text": text, "emoji": False}}


def _parts(text: str, limit: int) -> list[str]:
    return [text[start : start + limit] for start in range(0, len(text), limit)] or [" "]
